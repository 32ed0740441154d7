"""The pace at endpoints of every temper: "auto" in virtual time, beside fixed settings and the endpoint's own pace."""

from __future__ import annotations

import pytest

from bench.profiles import report
from bench.profiles.drive import new_pace, play
from bench.profiles.endpoints import PROFILES as ENDPOINTS
from bench.scenarios import PROFILES, Scenario


@pytest.mark.parametrize("scenario", PROFILES, ids=[scenario.id for scenario in PROFILES])
def test_profile(once, results, scenario: Scenario):
    profile = ENDPOINTS[scenario.id.removeprefix("profile-")]
    figures = report.measure(profile, once(lambda: play(profile.open(), new_pace("auto"))))
    headings = [] if report.TITLE in results.notes else [report.HEADINGS]
    misses = [f"missed: {miss}" for miss in figures.misses()]
    lines = [*headings, report.line(figures), *misses]
    results.note(report.TITLE, lines, report.records_of(scenario, figures), report.LEGEND)

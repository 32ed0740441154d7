"""The pace at endpoints of every temper: "auto" in virtual time, beside fixed settings and the endpoint's own pace."""

from __future__ import annotations

import pytest

from bench.profiles import chance, report
from bench.profiles.drive import new_pace, play
from bench.profiles.endpoints import PROFILES as ENDPOINTS
from bench.scenarios import CHANCE, PROFILES, Scenario


@pytest.mark.parametrize("scenario", PROFILES, ids=[scenario.id for scenario in PROFILES])
def test_profile(once, results, scenario: Scenario):
    profile = ENDPOINTS[scenario.id.removeprefix("profile-")]
    figures = report.measure(profile, once(lambda: play(profile.open(), new_pace("auto"))))
    headings = [] if report.TITLE in results.notes else [report.HEADINGS]
    misses = [f"missed: {miss}" for miss in figures.misses()]
    lines = [*headings, report.line(figures), *misses]
    results.note(report.TITLE, lines, report.records_of(scenario, figures), report.LEGEND)


def test_chance(once, results):
    found = once(lambda: {case: chance.measure(case) for case in chance.CASES})
    misses = [f"missed: {miss}" for case, chanced in found.items() for miss in chance.misses(case, chanced)]
    results.note(chance.TITLE, [*chance.lines(found), *misses], chance.records_of(CHANCE, found))

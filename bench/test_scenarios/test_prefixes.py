"""What the responses to one prompt share, as every rubric shows them."""

from __future__ import annotations

import pytest

from bench import prefix_share
from bench.scenarios import PREFIXES, Scenario


@pytest.mark.parametrize("scenario", PREFIXES, ids=[scenario.id for scenario in PREFIXES])
def test_prefix_share(once, results, scenario: Scenario):
    found = once(lambda: prefix_share.measure(scenario))
    results.note(prefix_share.TITLE, [prefix_share.line(scenario, found)], prefix_share.records_of(scenario, found))

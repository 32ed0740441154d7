"""Memory that was lost, planted in what is installed: the gate's exact figures of the self mode tell of it.

`tox -e gate-proof` plants the others of `tests/bench/gate_defects.py`.
"""

from __future__ import annotations

import pytest

from bench.gate import exact, revisions
from bench.gate.findings import compare_exact
from tests.bench.gate_defects import MEMORY, planted

#: Those that no other figure would show: what is freed, what is held twice, and what is computed in vain.
CHOSEN = [MEMORY[0], MEMORY[1], MEMORY[4]]


@pytest.fixture(scope="module")
def installed():
    with revisions.installed(revisions.Revision(".", None)) as python:
        yield python


@pytest.fixture(scope="module")
def before(installed):
    return exact.measure(installed, lambda line: None, only=[MEMORY[0].seen_by[0]])


@pytest.mark.parametrize("defect", CHOSEN, ids=[defect.name for defect in CHOSEN])
def test_the_exact_tier_catches_it(installed, before, defect):
    scenario, metric = defect.seen_by
    with planted(installed, defect) as python:
        after = exact.measure(python, lambda line: None, only=[scenario])
    assert metric in {finding.metric for finding in compare_exact(before, after) if finding.outcome == "fail"}


def test_what_is_counted_and_predicted_is_the_same_every_time(installed, before):
    again = exact.measure(installed, lambda line: None, only=list(before.plan))
    assert again.figures == before.figures
    assert {"padding", "predicted peak, slope", "counted peak, batch 16"} <= before.figures["torch/self-8/1024"].keys()

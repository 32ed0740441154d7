"""Regressions planted in what is installed: each must fail, by the tier and the figure that are there for it.

Those of the wire, which take seconds each, and of memory, which need torch, are in `tox -e gate-proof`; memory is also
in tests/self_judge.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import nullcontext

import pytest

from bench.gate import children, exact, instructions, paired, revisions
from bench.scenarios import PAIRED, REGISTRY
from tests.bench.defects import DEFECTS as OF_THE_HARNESS
from tests.bench.gate_defects import COSTS, DEFECTS, planted

VIRTUAL = [defect for defect in OF_THE_HARNESS if REGISTRY[defect.seen_by[0]].is_virtual]


def quietly(line: str) -> None:
    pass


def by_name(defects):
    return pytest.mark.parametrize("defect", defects, ids=[defect.name for defect in defects])


@pytest.fixture(scope="module")
def base():
    """The working tree, built and installed as any revision is."""
    with revisions.installed(revisions.Revision(".", None)) as python:
        yield python


@by_name([*DEFECTS, *VIRTUAL])
def test_the_exact_tier_catches_it(base, defect):
    scenario, metric = defect.seen_by
    with planted(base, defect) as head:
        findings = exact.gate(base, head, quietly, only=[scenario])
    assert metric in {finding.metric for finding in findings if finding.outcome == "fail"}


@pytest.fixture(scope="module")
def counted(base):
    return instructions.count(base, quietly, [COSTS[0].seen_by[0]])


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed: nothing can be counted")
@by_name(COSTS)
def test_the_instruction_tier_catches_it(base, counted, defect):
    with planted(base, defect) as head:
        (finding,) = instructions.compare(counted, instructions.count(head, quietly, [defect.seen_by[0]]))
    assert finding.outcome == "fail"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed: nothing can be counted")
def test_a_second_count_of_the_same_revision_is_the_same_within_a_fifth_of_the_limit(base, counted):
    (finding,) = instructions.compare(counted, instructions.count(base, quietly, [COSTS[0].seen_by[0]]))
    assert finding.outcome == "pass"
    assert abs(finding.head / finding.base - 1) < (instructions.LIMIT - 1) / 5


def test_every_pair_has_both_revisions_and_who_goes_first_changes(monkeypatch):
    asked = []

    class Child:
        def __init__(self, name):
            self.name = name

        def tell(self):
            asked.append(self.name)

        def read(self):
            return {"CPU": {"base": 1.0, "head": 2.0}[self.name]}

    monkeypatch.setattr(paired, "started", lambda python, *_: nullcontext(Child(python)))
    assert paired.take_turns("base", "head", "any", 3, quietly) == {"CPU": [(1.0, 2.0)] * 3}
    assert asked == ["base", "head", "head", "base", "base", "head"]


@pytest.mark.parametrize("scenario", [scenario.id for scenario in PAIRED])
def test_a_pair_of_every_scenario_gives_figures(base, scenario):
    """What they say depends on the machine, and is not asked here."""
    found = paired.take_turns(base, base, scenario, 1, quietly)
    assert found
    assert all(value > 0 for pairs in found.values() for pair in pairs for value in pair)


def test_a_job_that_fails_ends_the_children_of_the_other(base, monkeypatch):
    """Else whoever asked would wait for them."""
    monkeypatch.setattr(children, "_broken_off", threading.Event())
    is_reading = threading.Event()

    def waits():
        with children.started(base, "http.server", "0") as child:
            is_reading.set()
            return child.read()

    def fails():
        is_reading.wait()
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        children.at_once(waits, fails)


def test_a_child_that_says_nothing_any_more_is_ended_and_that_is_told(base):
    with children.started(base, "http.server", "0", patience=0.5) as child:
        assert child.read() is None
        assert child.death() == "it said nothing for 0.5 s, and was ended"


def test_a_revision_that_cannot_run_a_scenario_is_told_apart(base):
    with planted(base, DEFECTS[-1]) as broken:
        *_, head_broken = paired.gate(base, broken, quietly, 5, ["paired-sync"])
        *_, base_broken = paired.gate(broken, base, quietly, 5, ["paired-sync"])
    assert (head_broken.outcome, base_broken.outcome) == ("fail", "inconclusive")
    assert "head cannot run it" in head_broken.why

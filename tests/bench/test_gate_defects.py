"""Regressions planted in what is installed: each must fail, by the tier and the figure that are there for it.

What is sound is measured once for all of them; `tox -e gate-proof` asks the whole gate for each. Those of memory, which
need torch, are in tests/self_judge.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import nullcontext

import pytest

from bench.gate import children, exact, instructions, paired, revisions
from bench.gate.findings import Measured, compare_exact
from bench.harness import ROOT
from bench.scenarios import PAIRED, REGISTRY, WIRE
from tests.bench.defects import DEFECTS as OF_THE_HARNESS
from tests.bench.defects import Defect, edit
from tests.bench.gate_defects import COSTS, DEFECTS, planted

COUNTED = [*DEFECTS, *OF_THE_HARNESS]


def quietly(line: str) -> None:
    pass


def by_name(defects):
    return pytest.mark.parametrize("defect", defects, ids=[defect.name for defect in defects])


@pytest.fixture(scope="module")
def base():
    """The working tree, built and installed as any revision is."""
    with revisions.installed(revisions.Revision(".", None)) as python:
        yield python


@pytest.fixture(scope="module")
def sound(base) -> Measured:
    return exact.measure(base, quietly, only=sorted({defect.seen_by[0] for defect in COUNTED}))


@by_name(COUNTED)
def test_the_exact_tier_catches_it(base, sound, defect):
    with planted(base, defect) as head:
        findings = compare_exact(sound, exact.measure(head, quietly, only=[defect.seen_by[0]]))
    assert defect.seen_by in {(each.scenario, each.metric) for each in findings if each.outcome == "fail"}


def test_what_is_sound_opens_a_connection_for_each_place_and_keeps_it(sound):
    for scenario in WIRE:
        if scenario.id in sound.plan:  # else no defect is seen by it
            seen = {metric: figure.value for metric, figure in sound.figures[scenario.id].items()}
            assert (seen["requests"], seen["peak in flight"]) == (scenario.n, scenario.places), scenario.id
            assert seen["connections opened"] == scenario.places, scenario.id


def test_every_defect_has_a_name_and_a_scenario_of_its_own_registry():
    assert len({defect.name for defect in COUNTED}) == len(COUNTED)
    assert {defect.seen_by[0] for defect in COUNTED} <= REGISTRY.keys()


def test_a_defect_whose_text_is_gone_says_so():
    gone = Defect("gone", (("rewardcore/judge.py", "no such text", ""),), ("wire-few", "requests"))
    with pytest.raises(AssertionError, match=r"'gone' stands on a text that rewardcore/judge\.py has 0 times"):
        edit(gone, ROOT)


@pytest.fixture(scope="module")
def counted(base):
    return instructions.count(base, quietly, [COSTS[0].seen_by[0]])


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed: nothing can be counted")
@by_name(COSTS)
def test_the_instruction_tier_catches_it(base, counted, defect):
    with planted(base, defect) as head:
        (finding,) = instructions.compare(counted, instructions.count(head, quietly, [defect.seen_by[0]]))
    assert finding.outcome == "fail"


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

"""The harness tells of every defect that was planted: an exact figure gets worse, on any machine, in one run."""

from __future__ import annotations

import pytest

from bench.scenarios import REGISTRY, WIRE
from tests.bench.defects import DEFECTS, Defect, Figures, is_worse, measure, plant


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """Of a copy in which nothing was planted."""
    ids = sorted({scenario for scenario, _ in (defect.seen_by for defect in DEFECTS)})
    return measure(plant(None, tmp_path_factory.mktemp("clean")), ids)


@pytest.mark.parametrize("defect", DEFECTS, ids=[defect.name for defect in DEFECTS])
def test_a_planted_defect_is_seen_by_an_exact_figure(defect: Defect, clean: Figures, tmp_path):
    planted = measure(plant(defect, tmp_path), [defect.seen_by[0]])
    assert clean[defect.seen_by]["exact"]
    assert is_worse(planted[defect.seen_by], clean[defect.seen_by]), (planted[defect.seen_by], clean[defect.seen_by])


def test_what_is_sound_opens_a_connection_for_each_place_and_keeps_it(clean: Figures):
    for scenario in WIRE:
        seen = {metric: figure["value"] for (id, metric), figure in clean.items() if id == scenario.id}
        if not seen:
            continue  # no defect is seen by it
        assert (seen["requests"], seen["peak in flight"]) == (scenario.n, scenario.places), scenario.id
        assert seen["connections opened"] == scenario.places, scenario.id


def test_every_defect_has_a_name_and_a_scenario_of_its_own_registry():
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert {defect.seen_by[0] for defect in DEFECTS} <= REGISTRY.keys()


def test_a_defect_whose_text_is_gone_says_so(tmp_path):
    gone = Defect("gone", (("rewardcore/judge.py", "no such text", ""),), ("wire-few", "requests"))
    with pytest.raises(AssertionError, match=r"'gone' stands on a text that rewardcore/judge\.py has 0 times"):
        plant(gone, tmp_path)

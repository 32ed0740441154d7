"""The self mode in the harness: the same registry, the same checks of equal work."""

from __future__ import annotations

import pytest

from bench.runner import check_equal_work, run, stage_for
from bench.scenarios import BATCH_SIZES, REGISTRY, SELF, SIZES


def run_scenario(id: str):
    with stage_for(REGISTRY[id]) as stage:
        return run(REGISTRY[id], stage)


def test_every_size_is_there_at_every_batch_size():
    assert {(scenario.n, scenario.batch_size) for scenario in SELF} == {(n, b) for n in SIZES for b in BATCH_SIZES}


@pytest.mark.parametrize(("n", "calls"), [(16, 2), (32, 4), (100, 13)])
def test_n_prompts_take_as_many_calls_as_the_source_documents_claim(n, calls):
    assert run_scenario(f"torch/self-8/{n}").requests == calls


def test_every_batch_size_gives_the_same_scores():
    check_equal_work([run_scenario(f"torch/self-{batch_size}/16") for batch_size in BATCH_SIZES])

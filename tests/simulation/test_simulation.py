"""A thousand histories of the real drivers and engine in virtual time, and the defects that they must find."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import failures
from tests.simulation.defects import DEFECTS
from tests.simulation.history import play

SEEDS = 1000
BLOCK = 250


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_every_promise_holds_in_every_history(first: int) -> None:
    for seed in range(first, first + BLOCK):
        play(seed)


@pytest.mark.parametrize("seed", range(0, 40))
def test_a_seed_is_one_history_to_the_last_callback(seed: int) -> None:
    assert play(seed) == play(seed)


@pytest.mark.filterwarnings("ignore")  # what a broken history leaves unawaited
@pytest.mark.parametrize("defect", DEFECTS)
def test_the_simulation_finds_a_defect_that_is_put_back(defect: str) -> None:
    with DEFECTS[defect]():
        assert failures(range(2000), most=1), "none of 2,000 histories shows it"
    assert not failures(range(5)), "the defect is still there afterwards"

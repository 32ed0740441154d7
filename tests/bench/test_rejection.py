"""The benchmark of rejection sampling compares equal work only, and finds what a resumed run would find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import rejection
from bench.runner import UnequalWork
from bench.scenarios import REJECTION, REJECTION_STRAGGLERS, REJECTIONS
from rewardcore.testing import SimulatedServer
from rewardcore.testing.latency import Profile

SMALL = replace(REJECTION, n=20 * 4, responses=4, profile=Profile())


def test_the_scenarios_are_those_that_were_promised():
    assert (REJECTION.requests, REJECTION.places, REJECTION.profile.latency) == (1600, 8 * 16, 0.05)
    assert REJECTION.ideal == pytest.approx(13 * 0.05)
    assert (REJECTION_STRAGGLERS.profile.straggler_fraction, REJECTION_STRAGGLERS.profile.straggler_factor) == (
        0.05,
        10,
    )
    assert len({scenario.id for scenario in REJECTIONS}) == len(REJECTIONS)


def test_a_run_by_batches_does_the_same_work_as_the_command():
    pairs = rejection.measure(SMALL, samples_at_once=8, rounds=2)
    assert [run.requests for pair in pairs for run in pair] == [80] * 4, "and every round asks everything anew"
    assert len({run.digest for pair in pairs for run in pair}) == 1


@pytest.mark.parametrize("changed", [{"requests": 79}, {"digest": "other"}])
def test_unequal_work_is_refused(changed):
    good = rejection.Sampled(1.0, 80, "digest")
    with pytest.raises(UnequalWork):
        rejection.check_equal_work(SMALL, [good, replace(good, **changed)])


def test_a_run_that_goes_on_asks_only_what_is_left(tmp_path: Path):
    rejection.finish_all_but_a_few(tmp_path, 500)
    with SimulatedServer() as server:
        server.when("").says("<answer>3</answer>")
        start, seconds, early, late = rejection._run_here(tmp_path, server.base_url)
        assert server.stats().requests == 10
    assert 0 < start < seconds
    assert early
    assert late


def test_memory_is_read_after_a_fifth_and_at_the_end():
    growth = rejection.measure_stream(200)
    assert (growth.samples, growth.early > 2**20, growth.late > 2**20) == (200, True, True)

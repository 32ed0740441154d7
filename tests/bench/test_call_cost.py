"""The benchmark of many small calls does what it says: its requests, its statuses, and no result for other work."""

from __future__ import annotations

import dataclasses

import pytest

from bench import call_cost
from bench.call_cost import SHAPES, SILENT, Caller, Shape, StoppableClock, check_work, run_once, run_series
from bench.client_cost import CONCURRENCY
from bench.runner import UnequalWork
from bench.scenarios import Scenario, samples_of
from rewardcore.testing.server_process import SimulatedServer

ANSWERED = Shape(Caller.submit_each, "ok")
CANCELLED = Shape(Caller.cancel_each, "cancelled", is_answered=False)
SAMPLES = samples_of(Scenario("small", 70, "asyncio", "loopback"))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_run_sends_what_is_answered_and_nothing_else(shape):
    """More than there are places. Where nobody answers, only the requests that take the places were ever sent."""
    with SimulatedServer(call_cost.SCENARIOS[500].profile if shape.is_answered else SILENT) as server:
        assert run_once(shape, server, SAMPLES) > 0
        assert server.stats().requests == CONCURRENCY + (len(SAMPLES) if shape.is_answered else 0)


def test_every_size_has_a_figure_for_every_round():
    figures = run_series("n cancels", 2, (3, 5))
    assert [len(rounds) for rounds in figures] == [2, 2]


def test_every_shape_is_measured_and_what_is_not_answered_once_more(monkeypatch):
    """In processes of their own; two shapes stand for all, since starting one takes a second."""
    monkeypatch.setattr(call_cost, "SHAPES", {name: SHAPES[name] for name in ("one call of n", "n cancels")})
    costs = call_cost.measure(1, sizes=(2,))
    assert {name: len(by_size[2].rounds) for name, by_size in costs.items()} == {"one call of n": 1, "n cancels": 2}


def test_every_size_is_a_scenario():
    assert [(n, scenario.n) for n, scenario in call_cost.SCENARIOS.items()] == [(n, n) for n in call_cost.SIZES]
    assert len({scenario.id for scenario in call_cost.SCENARIOS.values()}) == len(call_cost.SIZES)


@pytest.mark.parametrize(
    ("shape", "statuses", "requests", "was_ready", "complaint"),
    [
        (ANSWERED, {"ok": 3, "failed": 1}, 4, True, "should be 'ok', and are .*'failed': 1"),
        (ANSWERED, {"ok": 3}, 4, True, "4 samples should be 'ok'"),
        (ANSWERED, {"ok": 4}, 5, True, "5 requests reached the endpoint where 4 were due"),
        (CANCELLED, {"cancelled": 4}, 1, True, "1 requests reached the endpoint where 0 were due"),
        (CANCELLED, {"cancelled": 3, "waiting": 1}, 0, True, "should be 'cancelled'"),
        (CANCELLED, {"cancelled": 4}, 0, False, "first requests"),
    ],
)
def test_unequal_work_is_refused(shape, statuses, requests, was_ready, complaint):
    with pytest.raises(UnequalWork, match=complaint):
        check_work(shape, 4, statuses, requests, was_ready)


def test_a_run_whose_samples_meet_another_fate_is_refused():
    """End to end: calls that expire are no calls that were answered."""
    expiring = SHAPES["n that expire"]
    with SimulatedServer(SILENT) as server, pytest.raises(UnequalWork, match="'timeout': 2"):
        run_once(dataclasses.replace(expiring, status="ok"), server, SAMPLES[:2])


def test_a_stopped_clock_gives_every_call_the_same_instant():
    clock = StoppableClock()
    clock.stands_at = clock.now()
    assert clock.now() == clock.now() == clock.stands_at
    before, clock.stands_at = clock.stands_at, None
    assert clock.now() >= before

"""The harness measures what it says: virtual time is exact, and unequal work is no result."""

from __future__ import annotations

import dataclasses
import math

import pytest

from bench.runner import (
    Run,
    UnequalWork,
    check_equal_work,
    measurable,
    mocked_workers_stage,
    run,
    stage_for,
)
from bench.scenarios import REGISTRY, Scenario, samples_of
from rewardcore.testing.latency import Profile


def run_scenario(scenario: Scenario) -> Run:
    with stage_for(scenario) as stage:
        return run(scenario, stage)


@pytest.mark.parametrize("mode", ["sync", "asyncio-httpx"])
@pytest.mark.parametrize(("n", "at_once", "latency"), [(1, 1, 2.0), (7, 3, 0.7), (61, 60, 2.0), (100, 60, 0.1)])
def test_virtual_time_is_the_analytic_makespan(mode, n, at_once, latency):
    """Whole waves of constant latency, to the last digit."""
    scenario = Scenario("wave", n, mode, "respx", profile=Profile(latency=latency), max_concurrent=at_once)
    waves = n if mode == "sync" else math.ceil(n / at_once)
    result = run_scenario(scenario)
    assert result.seconds == pytest.approx(waves * latency, abs=1e-9)
    assert result.efficiency == pytest.approx(1.0, abs=1e-9)
    assert result.peak_in_flight == (1 if mode == "sync" else min(n, at_once))


def test_34_naive_minutes_against_36_seconds():
    naive, asynchronous = run_scenario(REGISTRY["naive-1024"]), run_scenario(REGISTRY["async-1024"])
    check_equal_work([naive, asynchronous])
    assert (naive.seconds, asynchronous.seconds) == (2048.0, 36.0)


def test_repeated_responses_are_paid_once():
    result = run_scenario(REGISTRY["async-1024-cached"])
    assert result.requests == 256
    assert result.cached + result.coalesced == 768
    assert result.seconds == 10.0


def test_a_caller_that_computes_longer_than_judging_takes_never_waits():
    assert run_scenario(REGISTRY["gpu-wait-asyncio"]).waited == 0.0


def test_sync_judging_blocks_its_caller_for_all_of_it():
    assert run_scenario(REGISTRY["gpu-wait-sync"]).waited == pytest.approx(70.0, abs=1e-9)


@pytest.mark.parametrize("id", ["respx/asyncio-httpx/100", "sweep-128", "sweep-auto"])
def test_the_same_seed_gives_the_same_run_twice(id):
    """Also where 429s, jittered retries and the adaptive limit are at work."""
    assert run_scenario(REGISTRY[id]) == run_scenario(REGISTRY[id])


def test_worker_processes_install_the_mock_themselves():
    """And so they agree with the sync mode on counts and scores; their time means nothing and is not reported."""
    scenario = REGISTRY["respx/process/16"]
    workers = run(scenario, mocked_workers_stage())
    check_equal_work([run_scenario(REGISTRY["respx/sync/16"]), workers])
    assert workers.seconds is None


def a_run(**changes) -> Run:
    scenario = Scenario("small", 4, "sync", "respx")
    fields = dict.fromkeys(("retried", "cached", "coalesced"), 0) | {
        "scenario": scenario, "seconds": 8.0, "waited": 8.0, "requests": 4, "peak_in_flight": 1,
        "statuses": {"ok": 4}, "digest": "aa",
    }  # fmt: skip
    return Run(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"statuses": {"ok": 3, "failed": 1}}, "not every sample"),
        ({"requests": 3}, "3 requests reached the endpoint where 4 were due"),
        ({"requests": 5}, "5 requests"),
        ({"digest": "bb"}, "score the same samples differently"),
    ],
)
def test_unequal_work_is_refused(changes, complaint):
    with pytest.raises(UnequalWork, match=complaint):
        check_equal_work([a_run(), a_run(**changes)])


def test_a_retry_that_was_due_is_equal_work():
    check_equal_work([a_run(), a_run(requests=5, retried=1)])


def test_a_mode_that_judges_other_samples_is_refused():
    """End to end: another seed is another workload, so its scores differ."""
    scenario = REGISTRY["respx/sync/16"]
    other = dataclasses.replace(scenario, seed=scenario.seed + 1)
    with pytest.raises(UnequalWork, match="differently"):
        check_equal_work([run_scenario(scenario), run_scenario(other)])


async def a_coroutine() -> None:
    pass


async def an_async_generator():
    yield


@pytest.mark.parametrize("mistake", [a_coroutine, an_async_generator])
def test_a_coroutine_handed_to_a_benchmark_is_an_error(mistake):
    with pytest.raises(TypeError, match=r"wrap it in asyncio\.run"):
        measurable(mistake)


def test_a_function_that_returns_a_coroutine_is_an_error_too():
    coroutine = a_coroutine()
    with pytest.raises(TypeError, match="never done"):
        measurable(lambda: coroutine)()
    coroutine.close()


def test_samples_repeat_as_the_scenario_says():
    scenario = Scenario("repeats", 100, "sync", "respx", distinct=25)
    samples = samples_of(scenario)
    assert (len(samples), len(set(samples))) == (100, 25)
    assert samples == samples_of(scenario)


def test_a_real_scenario_without_an_endpoint_names_the_flags():
    with pytest.raises(ValueError, match="--base-url and --model"), stage_for(REGISTRY["real/sync/16"]):
        pass

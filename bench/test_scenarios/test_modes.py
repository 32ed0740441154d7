"""Every mode at every size on every backend, side by side; the speed-ups are in the summary at the end."""

from __future__ import annotations

import pytest

from bench.runner import VIRTUAL_CLOCK, Stage
from bench.scenarios import GRID, SOURCES, SWEEP, Scenario

VIRTUAL = [s for s in [*GRID, *SOURCES, *SWEEP] if s.backend == "respx" and s.mode != "process"]
MOCKED_WORKERS = [s for s in GRID if s.backend == "respx" and s.mode == "process"]
LOOPBACK = [s for s in GRID if s.backend == "loopback"]


def by_id(scenarios):
    return pytest.mark.parametrize("scenario", scenarios, ids=[scenario.id for scenario in scenarios])


@by_id(VIRTUAL)
@pytest.mark.benchmark(timer=VIRTUAL_CLOCK.now)
def test_virtual_time(run_benchmark, scenario: Scenario):
    run_benchmark(scenario)


@by_id(MOCKED_WORKERS)
def test_mocked_workers(run_benchmark, scenario: Scenario):
    run_benchmark(scenario)


@by_id(LOOPBACK)
def test_loopback(run_benchmark, scenario: Scenario):
    run_benchmark(scenario, rounds=3 if scenario.mode == "asyncio" else 1)


def test_real_endpoint(run_benchmark, real_endpoint, real_scenario: Scenario):
    run_benchmark(real_scenario, stage=Stage(real_endpoint.endpoint))

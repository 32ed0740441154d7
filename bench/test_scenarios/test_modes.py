"""Every mode at every size on every backend, side by side; the speed-ups are in the summary at the end."""

from __future__ import annotations

import pytest

from bench.agreement import LEGEND
from bench.real import RealEndpoint, Size
from bench.scenarios import GRID, GUARDS, SOURCES, SWEEP, WIRE, Scenario

VIRTUAL = [s for s in [*GRID, *SOURCES, *SWEEP, *GUARDS] if s.backend == "respx" and s.mode != "process"]
MOCKED_WORKERS = [s for s in GRID if s.backend == "respx" and s.mode == "process"]
LOOPBACK = [s for s in GRID if s.backend == "loopback"]


def by_id(scenarios):
    return pytest.mark.parametrize("scenario", scenarios, ids=[scenario.id for scenario in scenarios])


@by_id(VIRTUAL)
def test_virtual_time(run_benchmark, scenario: Scenario):
    run_benchmark(scenario)


@by_id(MOCKED_WORKERS)
def test_mocked_workers(run_benchmark, scenario: Scenario):
    run_benchmark(scenario)


@by_id(LOOPBACK)
def test_loopback(run_benchmark, scenario: Scenario):
    run_benchmark(scenario, rounds=3 if scenario.mode == "asyncio" else 1)


@by_id(WIRE)
def test_wire(run_benchmark, scenario: Scenario):
    run_benchmark(scenario)


def test_real_endpoint(once, results, real_endpoint: RealEndpoint, real_size: Size):
    """What was paid for is told, whatever happens to the rest."""
    try:
        once(lambda: real_endpoint.measure(real_size, results.record))
    finally:
        measured = real_endpoint.measured(real_size)
        title = f"real endpoint, n = {real_size.n}"
        results.note(title, real_endpoint.lines(measured), real_endpoint.records(measured), LEGEND)

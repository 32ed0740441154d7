"""pytest over the scenario registry: options, the session's results, and the summary at its end.

This folder has no __init__.py: asv, which imports every module of the package `bench` without pytest, passes it over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import records, summary
from bench.real import Budget, RealEndpoint
from bench.runner import Run, Stage, measurable, run, stage_for
from bench.scenarios import Scenario
from bench.summary import Results


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rewardcore", "rewardcore's benchmarks")
    group.addoption("--base-url", help="also benchmark a real endpoint, such as http://127.0.0.1:8000/v1")
    group.addoption("--model", help="the model it serves; the key is read from --api-key-env")
    group.addoption("--api-key-env", default="OPENAI_API_KEY", help="variable that holds its key (%(default)s)")
    group.addoption("--max-requests", type=int, default=500, help="send it no more than this many (%(default)s)")
    group.addoption("--max-tokens", type=int, default=256, help="tokens it may write per reply (%(default)s)")
    group.addoption("--records", type=Path, default=records.DIRECTORY / "records.jsonl", help="where records go")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = Results()


_RESULTS = pytest.StashKey[Results]()
_REAL = pytest.StashKey[RealEndpoint | None]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """A real endpoint is checked, and its cost told, before anything else runs."""
    options = session.config.option
    if (options.base_url is None) != (options.model is None):
        raise pytest.UsageError("--base-url and --model go together: the one says where, the other what to ask for")
    if options.base_url is None:
        session.config.stash[_REAL] = None
        return
    budget = Budget(options.max_requests, options.max_tokens)
    try:
        real = RealEndpoint.connect(options.base_url, options.model, options.api_key_env, budget)
    except ValueError as error:
        raise pytest.UsageError(f"--base-url / --model: {error}") from error
    session.config.stash[_REAL] = real
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(real.estimate())


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    results = config.stash[_RESULTS]
    if not results.is_empty:
        records.write(results.records(), config.option.records)
        for line in summary.render(results):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"records: {config.option.records}")


@pytest.fixture
def results(request: pytest.FixtureRequest) -> Results:
    return request.config.stash[_RESULTS]


@pytest.fixture(scope="session")
def real_endpoint(request: pytest.FixtureRequest) -> RealEndpoint:
    real = request.config.stash[_REAL]
    assert real is not None, "scenarios of the backend 'real' are only collected with --base-url"
    return real


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "real_scenario" in metafunc.fixturenames:
        real = metafunc.config.stash.get(_REAL, None)
        scenarios = real.scenarios if real else []
        metafunc.parametrize("real_scenario", scenarios, ids=[scenario.id for scenario in scenarios])


@pytest.fixture
def run_benchmark(benchmark: Any, results: Results) -> Callable[..., Run]:
    """Time a scenario with pytest-benchmark, on its own stage, and keep its best run and its records."""

    def timed(scenario: Scenario, *, rounds: int = 1, stage: Stage | None = None) -> Run:
        benchmark.group = scenario.group
        runs: list[Run] = []
        with stage_for(scenario) if stage is None else contextlib.nullcontext(stage) as ready:
            judge = measurable(lambda: runs.append(run(scenario, ready)))
            benchmark.pedantic(judge, rounds=rounds)
        best = min(runs, key=lambda each: each.seconds or 0.0)
        results.add(best)
        benchmark.extra_info["records"] = [
            {"metric": each.metric, "value": each.value, "unit": each.unit} for each in records.records_of(best)
        ]
        return best

    return timed


@pytest.fixture
def once(benchmark: Any) -> Callable[[str, Callable[[], Any]], Any]:
    """Run a measurement that has its own rounds inside, once, as a benchmark of its own group."""

    def run_once(group: str, function: Callable[[], Any]) -> Any:
        benchmark.group = group
        return benchmark.pedantic(measurable(function), rounds=1)

    return run_once

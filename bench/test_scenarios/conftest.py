"""pytest over the scenario registry: options, the session's results, and the summary at its end.

This folder has no __init__.py: asv, which imports every module of the package `bench` without pytest, passes it over.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import records, summary
from bench.endpoint_flags import add_endpoint_flags, count, endpoint_of
from bench.real import Budget, RealEndpoint
from bench.runner import Run, measurable, run, stage_for
from bench.scenarios import Scenario
from bench.summary import Results
from rewardcore import RewardcoreError, rubrics


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup(
        "rewardcore", "rewardcore's benchmarks; of a real endpoint, too, with --base-url and --model"
    )
    add_endpoint_flags(group.addoption, max_tokens=256, required=False)
    group.addoption("--max-requests", type=count, default=500, help="send it no more than this many (%(default)s)")
    group.addoption("--rounds", type=count, default=3, help="in which all modes take turns, at most (%(default)s)")
    group.addoption("--rubric", default="quality", help="a rubric's name, or a TOML file (%(default)s)")
    group.addoption("--records", type=Path, default=records.FILE, help="where records go")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = Results(config.option.records)


_RESULTS = pytest.StashKey[Results]()
_REAL = pytest.StashKey[RealEndpoint | None]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """A real endpoint is checked, and its cost told, before anything else runs."""
    options = session.config.option
    if (options.base_url is None) != (options.model is None):
        raise pytest.UsageError("--base-url and --model go together: the one says where, the other what to ask for")
    session.config.stash[_REAL] = real = _connect(options) if options.base_url is not None else None
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if real is not None and reporter is not None:
        reporter.write_line(real.estimate())


def _connect(options: Any) -> RealEndpoint:
    try:
        budget, rubric = Budget(options.max_requests, options.rounds), rubrics.named(options.rubric)
        return RealEndpoint.connect(endpoint_of(options), budget, rubric=rubric)
    except (ValueError, RewardcoreError) as error:
        raise pytest.UsageError(str(error)) from error


def pytest_sessionfinish(session: pytest.Session) -> None:
    real = session.config.stash.get(_REAL, None)
    if real is not None:
        real.__exit__()
    if session.config.stash[_RESULTS].problems and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Of whatever was measured, also when it was broken off; its records are written already."""
    results = config.stash[_RESULTS]
    if not results.is_empty:
        for line in summary.render(results):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"records: {config.option.records} (run {records.RUN})")


@pytest.fixture
def results(request: pytest.FixtureRequest) -> Results:
    return request.config.stash[_RESULTS]


@pytest.fixture(scope="session")
def real_endpoint(request: pytest.FixtureRequest) -> RealEndpoint:
    real = request.config.stash[_REAL]
    assert real is not None, "sizes of a real endpoint are only collected with --base-url"
    return real


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "real_size" in metafunc.fixturenames:
        real = metafunc.config.stash.get(_REAL, None)
        skipped = pytest.param(None, marks=pytest.mark.skip("no real endpoint: give --base-url and --model"), id="real")
        sizes: list[Any] = [pytest.param(size, id=f"real n={size.n}") for size in real.sizes] if real else [skipped]
        metafunc.parametrize("real_size", sizes)


class Stopwatch:
    """A timer that goes on by what the summary shows, and by nothing else: the two tables cannot disagree."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def run_benchmark(benchmark: Any, results: Results) -> Callable[..., Run]:
    """Time a scenario with pytest-benchmark, on its own stage, and keep its best run and its records."""

    def timed(scenario: Scenario, *, rounds: int = 1) -> Run:
        runs: list[Run] = []
        benchmark.group = _group(scenario)
        benchmark._timer = stopwatch = Stopwatch()

        def judge() -> None:
            runs.append(run(scenario, stage))
            stopwatch.seconds += runs[-1].seconds or 0.0

        with stage_for(scenario) as stage:
            benchmark.pedantic(measurable(judge), rounds=rounds)
        best = min(runs, key=lambda each: each.seconds or 0.0)
        results.add(best)
        benchmark.extra_info["records"] = [
            {"metric": each.metric, "value": each.value, "unit": each.unit} for each in records.records_of(best)
        ]
        return best

    return timed


def _group(scenario: Scenario) -> str:
    if not scenario.is_timed:
        return "counted, not timed: 0 says nothing"
    return f"{scenario.group}, {'virtual' if scenario.is_virtual else 'real'} seconds"


@pytest.fixture
def once(benchmark: Any) -> Callable[[Callable[[], Any]], Any]:
    """Run a measurement that has its own rounds inside, once: its figures are in the summary."""

    def run_once(function: Callable[[], Any]) -> Any:
        benchmark.group = "how long measuring took, in real seconds; the figures are in the summary below"
        return benchmark.pedantic(measurable(function), rounds=1)

    return run_once

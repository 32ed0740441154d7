"""Runs a scenario and says what happened; and refuses to compare runs that did unequal work.

A stage is a backend made ready: an endpoint, a clock, and the endpoint's own counts, which are believed before ours.
A run is synchronous from outside, whatever the mode does inside, so a coroutine can never be timed unawaited.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import rewardcore
from bench.scenarios import MODES, Scenario, samples_of
from bench.virtual import VirtualClock, mount_judge
from rewardcore import Endpoint, Judge, Sample, Verdict
from rewardcore.clock import SYSTEM_CLOCK, Clock
from rewardcore.local.generator import Generator
from rewardcore.testing.latency import LatencyModel, Profile
from rewardcore.testing.server_process import SimulatedServer, refuse_if_saturated

VIRTUAL_URL = "http://judge.test/v1"
VIRTUAL_CLOCK = VirtualClock()
#: Seconds; long enough for the naive run of 34 virtual minutes.
DEADLINE = 10_000.0
T = TypeVar("T")


class UnequalWork(AssertionError):
    """A mode skipped, repeated or rescored something: its time means nothing."""


@dataclass(frozen=True)
class Run:
    """One judged batch. `seconds` are the stage's, virtual or real; None where they would mean nothing."""

    scenario: Scenario
    seconds: float | None
    waited: float
    requests: int
    retried: int
    cached: int
    coalesced: int
    peak_in_flight: int | None
    statuses: dict[str, int]
    digest: str

    @property
    def efficiency(self) -> float | None:
        return self.scenario.ideal / self.seconds if self.seconds and self.scenario.ideal else None


@dataclass(frozen=True)
class Stage:
    """Where a scenario is run. `counts` is (requests, peak in flight) as the endpoint saw them since `reset`."""

    endpoint: Endpoint | Generator
    clock: Clock = SYSTEM_CLOCK
    warm_up: bool = False
    timed: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    reset: Callable[[], object] = lambda: None
    counts: Callable[[], tuple[int, int]] | None = None


@contextlib.contextmanager
def virtual_stage(profile: Profile, seed: int) -> Iterator[Stage]:
    """The real code over httpx and respx, on the virtual clock: exact, with no noise."""
    import respx

    with respx.mock(assert_all_called=False) as router:
        mounted = mount_judge(router, VIRTUAL_CLOCK, LatencyModel(profile, seed), base_url=VIRTUAL_URL)
        judge = mounted.judge
        yield Stage(
            Endpoint(VIRTUAL_URL, model="judge"),
            VIRTUAL_CLOCK,  # type: ignore[arg-type]  # a Clock by its methods
            reset=mounted.reset,
            counts=lambda: (judge.requests, judge.peak_in_flight),
        )


def mock_this_worker() -> None:
    """`worker_setup` of the process mode: a spawned worker does not inherit a mock, so it installs its own."""
    import respx

    router = respx.mock(assert_all_called=False)
    router.start()
    mount_judge(router, VIRTUAL_CLOCK, LatencyModel(Profile()), base_url=VIRTUAL_URL)


def mocked_workers_stage() -> Stage:
    """Worker processes with a mock in each: no clock spans them, so only counts and digests are compared."""
    return Stage(Endpoint(VIRTUAL_URL, model="judge"), timed=False, options={"worker_setup": mock_this_worker})


@contextlib.contextmanager
def loopback_stage(profile: Profile, seed: int) -> Iterator[Stage]:
    """Real sockets and real time, to the simulated server in its own process; refused if that was the bottleneck."""
    with SimulatedServer(profile, seed=seed) as server:

        def counts() -> tuple[int, int]:
            stats = server.stats()
            return stats.requests, stats.peak_in_flight

        before = server.stats()
        yield Stage(Endpoint(server.base_url, model="judge"), warm_up=True, reset=server.reset, counts=counts)
        refuse_if_saturated(before, server.stats())


@contextlib.contextmanager
def stage_for(scenario: Scenario, endpoint: Endpoint | None = None) -> Iterator[Stage]:
    """The scenario's own backend; `endpoint` is the user's, for the backend `real`."""
    if scenario.backend == "respx" and scenario.mode == "process":
        yield mocked_workers_stage()
    elif scenario.backend == "respx":
        with virtual_stage(scenario.profile, scenario.seed) as stage:
            yield stage
    elif scenario.backend == "loopback":
        with loopback_stage(scenario.profile, scenario.seed) as stage:
            yield stage
    elif scenario.backend == "torch":
        from bench.self_mode import torch_stage  # brings torch

        yield torch_stage()
    elif endpoint is None:
        raise ValueError(f"{scenario.id} needs an endpoint: give --base-url and --model")
    else:
        yield Stage(endpoint)


def open_scenario(scenario: Scenario, stage: Stage) -> Judge:
    mode, options = MODES[scenario.mode]
    if mode == "self":
        options = {"batch_size": scenario.batch_size}
    else:
        limits = {"max_concurrent": scenario.max_concurrent, "deadline": DEADLINE}
        options = {**options, **limits, "cache": scenario.cache, "clock": stage.clock}
    opened: Judge = rewardcore.open_judge(mode, stage.endpoint, **options, **stage.options)  # type: ignore[call-overload]
    return opened


def run(scenario: Scenario, stage: Stage) -> Run:
    samples = samples_of(scenario)
    random.seed(scenario.seed)  # the jitter of the retry layer
    with open_scenario(scenario, stage) as judge:
        if stage.warm_up:  # start-up and first connections have a benchmark of their own
            judge.judge([Sample("warm-up", str(place)) for place in range(scenario.places)])
        stage.reset()
        before = judge.stats
        verdicts, seconds, waited = _judge(judge, samples, scenario.compute, stage.clock)
        after = judge.stats
    sent = after.requests - before.requests
    requests, peak = stage.counts() if stage.counts else (sent, None)
    return Run(
        scenario,
        seconds if stage.timed else None,
        waited,
        requests,
        after.retried - before.retried,
        after.cached - before.cached,
        after.coalesced - before.coalesced,
        peak,
        dict(Counter(verdict.status for verdict in verdicts)),
        digest_of(verdicts),
    )


def _judge(judge: Judge, samples: list[Sample], compute: float, clock: Clock) -> tuple[list[Verdict], float, float]:
    """(verdicts, makespan, how long the caller was blocked), on the stage's clock."""
    started = clock.now()
    with clock.hold() if isinstance(clock, VirtualClock) else contextlib.nullcontext():
        pending = judge.submit(samples)
        if compute:
            clock.sleep(compute)
    verdicts = pending.result()
    # To the nanosecond, which is what the virtual clock counts in: a difference of floats depends on when it began.
    return verdicts, round(clock.now() - started, 9), round(pending.waited, 9)


def digest_of(verdicts: list[Verdict]) -> str:
    """Over statuses and scores, in order: what every mode must agree on."""
    listing = "\n".join(f"{verdict.status} {verdict.score!r}" for verdict in verdicts)
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def check_equal_work(runs: list[Run]) -> None:
    """Every run of a comparison judged every sample, alike, with exactly the requests that were due."""
    for run in runs:
        scenario = run.scenario
        if run.statuses != {"ok": scenario.n}:
            raise UnequalWork(f"{scenario.id}: not every sample was judged: {run.statuses}")
        due = scenario.requests + run.retried
        if run.requests != due:
            raise UnequalWork(f"{scenario.id}: {run.requests} requests reached the endpoint where {due} were due")
        if run.digest != runs[0].digest:
            raise UnequalWork(f"{scenario.id} and {runs[0].scenario.id} score the same samples differently")


def measurable(function: Callable[[], T]) -> Callable[[], T]:
    """The function as a benchmark may time it. A timer does not await: a coroutine would measure nothing, and pass."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__} is a coroutine function, which no benchmark awaits: wrap it in asyncio.run"
        )

    def timed() -> T:
        result = function()
        if inspect.isawaitable(result) or inspect.isasyncgen(result):
            raise TypeError("the benchmarked function returned something to await: its work was never done")
        return result

    return timed

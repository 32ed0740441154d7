"""Runs a scenario and says what happened; and refuses to compare runs that did unequal work.

A stage is a backend made ready: an endpoint, a clock, and the endpoint's own counts, which are believed before ours.
A run is synchronous from outside, whatever the mode does inside, so a coroutine can never be timed unawaited.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import rewardcore
from bench.handover import Outcome, hand_over, tallied
from bench.mounted import mount_judge
from bench.prefix_blocks import PrefixBlocks
from bench.scenarios import MODES, Scenario, samples_of
from bench.virtual import VirtualClock
from rewardcore import Endpoint, Judge, Sample, Verdict
from rewardcore.clock import SYSTEM_CLOCK, Clock
from rewardcore.local.generator import Generator
from rewardcore.stats import Stats
from rewardcore.testing import replies
from rewardcore.testing.latency import LatencyModel, Profile
from rewardcore.testing.server_process import SimulatedServer, refuse_if_saturated

VIRTUAL_URL = "http://judge.test/v1"
#: Seconds; long enough for the naive run of 34 virtual minutes.
DEADLINE = 10_000.0
T = TypeVar("T")


class UnequalWork(AssertionError):
    """A mode skipped, repeated or rescored something: its time means nothing."""


class Counts(NamedTuple):
    """What the endpoint saw since it was reset; None where it cannot tell."""

    requests: int
    peak_in_flight: int | None = None
    refused: int | None = None  # answered with anything but a reply
    connections: int | None = None  # that were opened
    pause: float | None = None  # mean seconds from a refusal until the same request came again
    too_soon: int | None = None  # that came again before the time that Retry-After had asked for
    prefix_share: float | None = None  # of the bytes, those that it had seen at the beginning of others before


@dataclass(frozen=True)
class Run:
    """One judged workload. `seconds` are the stage's, virtual or real; None where they would mean nothing.

    `digest` is over statuses, scores and texts, in order. What comes after it is None where nobody could count it.
    """

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
    refused: int | None = None
    connections: int | None = None
    pause: float | None = None
    too_soon: int | None = None
    prefix_share: float | None = None
    submit_bytecodes: int | None = None  # of rewardcore, in the caller's thread
    left_behind: int | None = None  # bytes a sample of a stream
    wrong_from_cache: int | None = None  # verdicts out of a warm cache that are not what the endpoint had said
    prompt_tokens: int = 0
    completion_tokens: int = 0
    scores: tuple[float | None, ...] = field(default=(), repr=False)
    latencies: tuple[float, ...] = field(default=(), repr=False)

    @property
    def efficiency(self) -> float | None:
        return self.scenario.ideal / self.seconds if self.seconds and self.scenario.ideal else None

    @classmethod
    def of(cls, scenario: Scenario, stage: Stage, outcome: Outcome, before: Stats, after: Stats) -> Run:
        """From what the caller saw, what the judge counted meanwhile, and what the endpoint did, which is believed."""
        seen = stage.counts() if stage.counts else Counts(after.requests - before.requests)
        tally = outcome.tally
        return cls(
            scenario,
            outcome.seconds if scenario.is_timed else None,
            outcome.waited,
            seen.requests,
            after.retried - before.retried,
            after.cached - before.cached,
            after.coalesced - before.coalesced,
            seen.peak_in_flight,
            dict(tally.statuses),
            tally.digest,
            *seen[2:],
            outcome.submit_bytecodes,
            outcome.left_behind,
            prompt_tokens=after.prompt_tokens - before.prompt_tokens,
            completion_tokens=after.completion_tokens - before.completion_tokens,
            scores=tuple(tally.scores),
            latencies=tuple(tally.latencies),
        )


@dataclass(frozen=True)
class Stage:
    """Where a scenario is run. `counts` is what the endpoint saw since `reset`; `forget` lets go of what it kept."""

    endpoint: Endpoint | Generator
    clock: Clock = SYSTEM_CLOCK
    warm_up: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    reset: Callable[[], object] = lambda: None
    forget: Callable[[], object] = lambda: None
    counts: Callable[[], Counts] | None = None


@contextlib.contextmanager
def virtual_stage(profile: Profile, seed: int) -> Iterator[Stage]:
    """The real code over httpx and respx, on the virtual clock: exact, with no noise."""
    import respx

    with respx.mock(assert_all_called=False) as router:
        blocks, clock = PrefixBlocks(), VirtualClock()  # from 0.0: at another time sums are rounded otherwise
        model = LatencyModel(profile, seed)
        mounted = mount_judge(router, clock, model, base_url=VIRTUAL_URL, witness=blocks.see)
        judge = mounted.judge

        def reset() -> None:
            mounted.reset()
            blocks.reset()

        def forget() -> None:
            router.reset()
            replies.read.cache_clear()
            replies.write.cache_clear()

        def counts() -> Counts:
            pause = round(sum(mounted.pauses) / len(mounted.pauses), 9) if mounted.pauses else None
            refused = judge.requests - judge.statuses[200]
            return Counts(judge.requests, judge.peak_in_flight, refused, None, pause, mounted.too_soon, blocks.share)

        yield Stage(
            Endpoint(VIRTUAL_URL, model="judge"),
            clock,  # type: ignore[arg-type]  # a Clock by its methods
            reset=reset,
            forget=forget,
            counts=counts,
        )


def mock_this_worker() -> None:
    """`worker_setup` of the process mode: a spawned worker does not inherit a mock, so it installs its own."""
    import respx

    router = respx.mock(assert_all_called=False)
    router.start()
    mount_judge(router, VirtualClock(), LatencyModel(Profile()), base_url=VIRTUAL_URL)


def mocked_workers_stage() -> Stage:
    """Worker processes with a mock in each: no clock spans them, so only counts and digests are compared."""
    return Stage(Endpoint(VIRTUAL_URL, model="judge"), options={"worker_setup": mock_this_worker})


@contextlib.contextmanager
def loopback_stage(profile: Profile, seed: int) -> Iterator[Stage]:
    """Real sockets and real time, to the simulated server in its own process; refused if that was the bottleneck."""
    with SimulatedServer(profile, seed=seed) as server:

        def counts() -> Counts:
            stats = server.stats()
            refused = stats.requests - stats.statuses.get("200", 0)
            return Counts(stats.requests, stats.peak_in_flight, refused, stats.connections_opened)

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
    opened: Judge = rewardcore.open_judge(mode, stage.endpoint, **{**options, **stage.options})  # type: ignore[call-overload]
    return opened


def run(scenario: Scenario, stage: Stage) -> Run:
    samples = samples_of(scenario)
    random.seed(scenario.seed)  # the jitter of the retry layer
    if scenario.is_warm:
        return _run_warm(scenario, stage, samples)
    with open_scenario(scenario, stage) as judge:
        if stage.warm_up and not scenario.is_cold:  # start-up and first connections have a benchmark of their own
            judge.judge([Sample("warm-up", str(place)) for place in range(scenario.places)])
        stage.reset()
        return measure(judge, scenario, stage, samples)


def measure(judge: Judge, scenario: Scenario, stage: Stage, samples: list[Sample]) -> Run:
    """By a judge that is open, on a stage that is reset."""
    before = judge.stats
    outcome = hand_over(judge, samples, scenario.calls, scenario.compute, stage.clock, stage.forget)
    return Run.of(scenario, stage, outcome, before, judge.stats)


def _run_warm(scenario: Scenario, stage: Stage, samples: list[Sample]) -> Run:
    """Twice, the second time out of the cache; out of a file, by another judge than the one that has filled it."""
    with contextlib.ExitStack() as stack:
        if scenario.in_file:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            stage = replace(stage, options={**stage.options, "cache": Path(directory) / "judge.sqlite"})
        with open_scenario(scenario, stage) as judge:
            stage.reset()
            cold = judge.judge(samples)
            if not scenario.in_file:
                return _measure_warm(judge, scenario, stage, samples, cold)
        with open_scenario(scenario, stage) as judge:
            return _measure_warm(judge, scenario, stage, samples, cold)


def _measure_warm(judge: Judge, scenario: Scenario, stage: Stage, samples: list[Sample], cold: list[Verdict]) -> Run:
    stage.reset()
    before = judge.stats
    warm = judge.judge(samples)
    stated = [(verdict.status, verdict.score, verdict.text) for verdict in cold]
    wrong = sum(now != (verdict.status, verdict.score, verdict.text) for now, verdict in zip(stated, warm, strict=True))
    outcome = Outcome(0.0, 0.0, tallied(warm))
    return replace(Run.of(scenario, stage, outcome, before, judge.stats), wrong_from_cache=wrong)


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

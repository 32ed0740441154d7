"""The only definition of what is measured: a registry of frozen scenarios. Runners run them; none has its own workload.

`GRID` is every mode at every size on every backend; `WIRE` is what reaches a socket, as the server counts it; `GUARDS`
are refusals, storms and uneven latency, other calls and warm caches, in virtual time; `CLAIMS` are the settings of the
documents this project started from, with their figures beside the ideal; `SWEEP` is one endpoint under rising
concurrency, `STEPS` are a trainer's steps in the shapes of TRL and verl, `PROFILES` are endpoints of every temper, five
batches each, `REJECTIONS` are runs of rejection sampling, `CALIBRATED` are endpoints to be predicted, `PREFIXES` are
groups of responses as each rubric shows them, `PAIRED` is what the gate runs on a real clock, `OFFLINE` is vLLM's
engine without a server, `NIGHTLY_ENGINE` what that sets aside, `NIGHTLY_CONTROL` the device by itself. A scenario that
comes to mean something else gets another `version`: histories compare only what is the same.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from bench.ideal import list_schedule
from bench.profiles import endpoints
from rewardcore import Sample, rubrics
from rewardcore.testing.latency import LatencyModel, Profile
from rewardcore.testing.replies import describe

SIZES = (16, 32, 100, 1024)
FAMILIES = (
    *("wire", "refused", "uneven", "calls", "warm", "sweep", "step"),
    *("profile", "reject", "calibrated", "prefix", "paired", "nightly"),
)
BATCH_SIZES = (1, 2, 4, 8, 16)
Backend = Literal["respx", "loopback", "vllm", "real", "torch", "vllm-offline", "engine", "rubric"]
#: Servers and engines that answer as they like: one sample twice, and not always alike.
NEVER_EXACT = ("vllm", "real", "vllm-offline")
#: How a caller hands its samples over: all in one call, each in a call of its own, or as a stream.
Calls = Literal["batch", "single", "stream"]

#: mode → (rewardcore's mode, its options). Each backend can carry some of them.
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "sync": ("sync", {}),
    "process": ("process", {"workers": 4}),
    "asyncio": ("asyncio", {}),
    "asyncio-httpx": ("asyncio", {"transport": "httpx"}),
    "asyncio-child": ("asyncio", {"background": "process"}),
    "self": ("self", {}),
}
#: respx does not see aiohttp, so the asyncio mode is driven over httpx there.
BACKEND_MODES: dict[Backend, tuple[str, ...]] = {
    "respx": ("sync", "process", "asyncio-httpx"),
    "loopback": ("sync", "process", "asyncio", "asyncio-httpx", "asyncio-child"),
    "vllm": ("sync", "process", "asyncio", "asyncio-httpx"),
    "real": ("sync", "process", "asyncio"),
}
#: Full size in virtual time; scaled down a hundredfold where time is real.
FULL_LATENCY = Profile(latency=2.0)
SCALED_LATENCY = Profile(latency=0.02)


_WORDS = ("the", "of", "a", "number", "proof", "answer", "because", "step", "holds", "sum", "therefore", "equals")


@dataclass(frozen=True)
class Scenario:
    """One benchmark: n samples, judged in one mode, against one backend."""

    id: str
    n: int
    mode: str
    backend: Backend
    profile: Profile = FULL_LATENCY
    max_concurrent: int | Literal["auto"] = 60
    distinct: int | None = None
    cache: bool = False
    compute: float = 0.0  # seconds the caller computes between submit and result
    batch_size: int | None = 8  # of the self mode; None is one call for all, which continuous batching wants
    responses: int = 1  # to each prompt
    seed: int = 2026
    version: int = 1
    calls: Calls = "batch"
    is_cold: bool = False  # over sockets: without a warm-up, so that every connection is counted
    is_warm: bool = False  # judged once before, so that the cache has every reply
    in_file: bool = False  # that cache is a file, which another judge has written

    @property
    def group(self) -> str:
        """What stands side by side: the modes of one size, or a family of scenarios."""
        if "/" in self.id:
            return f"{self.backend} n={self.n}"
        family = self.id.split("-")[0]
        return family if family in FAMILIES else "source documents"

    @property
    def workload(self) -> tuple[object, ...]:
        """Who shares it must come to the same verdicts. A local model is a judge of its own."""
        return self.n, self.distinct, self.responses, self.seed, self.mode == "self"

    @property
    def is_virtual(self) -> bool:
        """Whether its seconds, if it has any, are virtual ones."""
        return self.backend == "respx"

    @property
    def is_timed(self) -> bool:
        """Mocked worker processes share no clock, and out of a cache virtual time takes none: both are only counted."""
        return not self.is_warm and (self.backend, self.mode) != ("respx", "process")

    @property
    def requests(self) -> int:
        """How many an honest run sends: one for each distinct sample; in the self mode, one for each full batch."""
        if self.is_warm:
            return 0
        if self.mode == "self":
            return math.ceil(self.n / (self.batch_size or self.n))
        return self.n if self.distinct is None else self.distinct

    @property
    def places(self) -> int:
        """How many requests can be in flight in this mode."""
        if self.mode == "sync":
            return 1
        if self.mode == "process":
            return int(MODES["process"][1]["workers"])
        return self.requests if self.max_concurrent == "auto" else self.max_concurrent

    @property
    def ideal(self) -> float | None:
        """The makespan of a perfect scheduler that knows of no refusal; None where none is known.

        Whole waves under constant latency; else list scheduling: whoever is free takes the next sample in order.
        """
        if self.backend not in ("respx", "loopback") or self.is_warm:
            return None
        if self.profile.spread or self.profile.straggler_fraction:
            return list_schedule(_seconds_of(self), self.places)
        return math.ceil(self.requests / self.places) * self.profile.latency


@dataclass(frozen=True)
class Claim:
    """A figure from the source documents: how many times less `after` takes than `before`, as they say and ideally."""

    id: str
    before: str
    after: str
    claimed: float
    ideal: float
    metric: Literal["makespan", "requests"] = "makespan"


def samples_of(scenario: Scenario) -> list[Sample]:
    """Seeded samples of varied length; with `distinct`, the first ones come again, shuffled among the rest.

    With several `responses` to a prompt, the groups one after the other, as a step of training gives them.
    """
    if scenario.responses > 1:
        return [sample for group in groups_of(scenario) for sample in group]
    draw = random.Random(scenario.seed)
    distinct = [
        Sample(
            f"Question {index}: {_text(draw, 20, 60)}?",
            f"Answer {index}: {_text(draw, 40, 160)}.",
            ground_truth=str(index),
        )
        for index in range(scenario.n if scenario.distinct is None else scenario.distinct)
    ]
    repeated = distinct + draw.choices(distinct, k=scenario.n - len(distinct))
    draw.shuffle(repeated)
    return repeated


def groups_of(scenario: Scenario, most_words: int = 400) -> list[list[Sample]]:
    """Seeded groups of `responses` to one prompt, as a step of training gives them; no two prompts begin alike."""
    draw = random.Random(scenario.seed)
    groups = []
    for index in range(scenario.n // scenario.responses):
        prompt = f"{draw.getrandbits(32):08x}: {_text(draw, most_words // 10, most_words)}?"
        responses = (_text(draw, most_words // 10, most_words // 2) for _ in range(scenario.responses))
        groups.append([Sample(prompt, response, ground_truth=str(index)) for response in responses])
    return groups


def _seconds_of(scenario: Scenario) -> list[float]:
    """What the simulated judge draws for each sample, in their order."""
    model = LatencyModel(scenario.profile, scenario.seed)
    digests = (describe("", rubrics.QUALITY.messages(sample)).digest for sample in samples_of(scenario))
    return [model.decide(digest, 1, 0.0).seconds for digest in digests]


def _text(draw: random.Random, low: int, high: int) -> str:
    return " ".join(draw.choices(_WORDS, k=draw.randint(low, high)))


def _grid() -> list[Scenario]:
    return [
        Scenario(
            id=f"{backend}/{mode}/{n}",
            n=n,
            mode=mode,
            backend=backend,
            profile=FULL_LATENCY if backend == "respx" else SCALED_LATENCY,
        )
        for backend, modes in BACKEND_MODES.items()
        for n in SIZES
        for mode in modes
    ]


_CROWDED = Profile(latency=2.0, concurrency_limit=80, retry_after=1.0)
_DOCUMENT = Profile(latency=0.7)

SOURCES = [
    Scenario("naive-1024", 1024, "sync", "respx"),
    Scenario("async-1024", 1024, "asyncio-httpx", "respx"),
    Scenario("async-1024-cached", 1024, "asyncio-httpx", "respx", distinct=256, cache=True),
    Scenario("three-modes-sync", 100, "sync", "respx", profile=_DOCUMENT),
    Scenario("three-modes-asyncio", 100, "asyncio-httpx", "respx", profile=_DOCUMENT),
    Scenario("gpu-wait-sync", 100, "sync", "respx", profile=_DOCUMENT, compute=80.0),
    Scenario("gpu-wait-asyncio", 100, "asyncio-httpx", "respx", profile=_DOCUMENT, compute=80.0),
    Scenario("one-level-16", 1024, "asyncio-httpx", "respx", max_concurrent=16),
    Scenario("two-level-8x16", 1024, "asyncio-httpx", "respx", max_concurrent=128),
]

SWEEP = [
    Scenario(f"sweep-{limit}", 1024, "asyncio-httpx", "respx", profile=_CROWDED, max_concurrent=limit)
    for limit in (1, 10, 20, 60, 80, 128, "auto")
]

#: What reaches the socket, in every transport and mode: a second a reply, so that on any machine all places are taken
#: before the first reply, and two waves, so that a connection that is not kept shows.
WIRE = [
    Scenario(f"wire-{mode}", n, mode, "loopback", profile=Profile(latency=1.0), is_cold=True)
    for mode, n in {"sync": 3, "process": 8, "asyncio": 120, "asyncio-httpx": 120, "asyncio-child": 120}.items()
]
WIRE.append(replace(WIRE[2], id="wire-few", n=8, max_concurrent=4))

_STORM = Profile(latency=2.0, outage_start=5.0, outage_seconds=10.0, error_status=500)
_GUARD = Scenario("guard", 256, "asyncio-httpx", "respx")
_WARM = replace(_GUARD, n=4096, profile=Profile(), cache=True, is_warm=True)
GUARDS = [
    replace(_GUARD, id="refused-rate", profile=Profile(latency=2.0, rate_limit=20.0, retry_after=3.0)),
    replace(_GUARD, id="refused-crowd", profile=Profile(latency=2.0, concurrency_limit=40, retry_after=3.0)),
    replace(_GUARD, id="refused-storm", n=512, profile=_STORM),
    replace(_GUARD, id="refused-flaky", profile=Profile(latency=2.0, error_fraction=0.1, error_status=500)),
    replace(_GUARD, id="uneven-lognormal", n=1024, profile=Profile(latency=2.0, spread=0.5)),
    replace(
        _GUARD,
        id="uneven-stragglers",
        n=1024,
        profile=Profile(latency=2.0, spread=0.2, straggler_fraction=0.05, straggler_factor=5.0),
    ),
    replace(_GUARD, id="calls-single", calls="single"),
    replace(_GUARD, id="calls-groups", responses=8),
    replace(_GUARD, id="calls-stream", n=1024, calls="stream", max_concurrent=1),
    replace(_WARM, id="warm-memory"),
    replace(_WARM, id="warm-file", in_file=True),
]

#: One step of a trainer: 256 trajectories, judged while or before it computes log-probabilities (6 s) and, with a
#: critic, values (4 s). What the GPUs wait is what is left of judging.
_STEP = Scenario("step", 256, "asyncio-httpx", "respx")
LOG_PROBABILITIES, VALUES = 6.0, 4.0
#: Median seconds until a trajectory is generated, and the spread of its logarithm: they end one by one.
GENERATION, GENERATION_SPREAD = 20.0, 0.4
STEPS = [
    replace(_STEP, id="step-one-by-one", mode="sync"),
    replace(_STEP, id="step-trl-asked"),
    replace(_STEP, id="step-trl-ahead", compute=LOG_PROBABILITIES),
    replace(_STEP, id="step-verl-batch"),
    replace(_STEP, id="step-verl-submitted", compute=LOG_PROBABILITIES + VALUES),
    replace(_STEP, id="step-verl-loop"),
]

#: What a real GRPO trainer asks in a step.
TRL_STEPS = Scenario("trl-steps", 128, "asyncio", "loopback", profile=Profile(latency=0.3))
#: What verl's managers and ours are asked to reward.
VERL_MANAGERS = Scenario("verl-managers", 1024, "asyncio", "loopback", profile=SCALED_LATENCY)

#: What every profile is asked to judge, in each of its batches.
PROFILED = Scenario("profile", 1024, "asyncio", "engine", max_concurrent="auto")
PROFILES = [replace(PROFILED, id=f"profile-{name}") for name in endpoints.PROFILES]
#: Failures by chance, in batches of many sizes: all cases of `bench.profiles.chance`, beside a plain loop.
CHANCE = replace(PROFILED, id="profile-chance")

#: 100 samples of 16 rollouts each, those of 8 samples at once; then with stragglers; then a journal of a million.
REJECTION = Scenario(
    "reject-100x16", 1600, "asyncio", "loopback", profile=Profile(latency=0.05), max_concurrent=128, responses=16
)
REJECTION_STRAGGLERS = replace(
    REJECTION,
    id="reject-stragglers",
    profile=replace(REJECTION.profile, straggler_fraction=0.05, straggler_factor=10.0),
)
REJECTION_RESUMED = replace(REJECTION, id="reject-resumed-1m", n=1_000_000, responses=1)
REJECTION_STREAM = replace(REJECTION, id="reject-stream", n=20_000, responses=1, profile=Profile())
REJECTIONS = [REJECTION, REJECTION_STRAGGLERS, REJECTION_RESUMED, REJECTION_STREAM]

#: Endpoints whose temper bench.calibrate is not told.
CALIBRATED = [
    Scenario(f"calibrated-{name}", 1024, "asyncio", "loopback", profile=profile)
    for name, profile in {
        "load": Profile(latency=0.06, tokens=70, seconds_per_token=0.001, load_growth=0.015),
        "cap": Profile(latency=0.12, spread=0.1, concurrency_limit=24, retry_after=0.1),
        "tail": Profile(latency=0.2, spread=0.45),
        "rate": Profile(latency=0.15, spread=0.1, rate_limit=120.0, retry_after=0.1),
    }.items()
]

PREFIXES = [Scenario(f"prefix-{name}", 32 * 8, "any", "rubric", responses=8) for name in rubrics.BY_NAME]

#: What the gate's pairs run, over sockets and on a real clock: without latency, what the client can do at most and what
#: that costs it; the control is asked by the standard library.
PAIRED = [
    Scenario("paired-control", 300, "sync", "loopback", profile=Profile()),
    Scenario("paired-saturated", 1024, "asyncio", "loopback", profile=Profile()),
    Scenario("paired-latency", 1024, "asyncio", "loopback", profile=SCALED_LATENCY),
    Scenario("paired-sync", 100, "sync", "loopback", profile=Profile()),
    Scenario("paired-process", 100, "process", "loopback", profile=Profile()),
    Scenario("paired-beside", 1024, "asyncio", "loopback", profile=SCALED_LATENCY),
    Scenario("paired-memory", 2048, "asyncio", "loopback", profile=Profile()),
]

#: vLLM's engine in our own care: all samples in one call.
OFFLINE = [Scenario(f"vllm-offline/self/{n}", n, "self", "vllm-offline", batch_size=None) for n in SIZES]
#: What it sets aside before it is asked anything.
NIGHTLY_ENGINE = Scenario("nightly-engine", 0, "self", "vllm-offline", version=2)
#: So many products of matrices on the device, and nothing of ours: what moves them is the machine.
NIGHTLY_CONTROL = Scenario("nightly-control", 40, "any", "torch", version=2)

CLAIMS = [
    Claim("async batch, no cache", "naive-1024", "async-1024", 16.0, 1024 / 18),
    Claim("async batch, cache", "naive-1024", "async-1024-cached", 27.0, 1024 / 5),
    Claim("sync → asyncio, 100 × 0.7 s", "three-modes-sync", "three-modes-asyncio", 7.0, 100 / 2),
    Claim("60 against 20 at once", "sweep-20", "sweep-60", 2.02, 52 / 18),
    Claim("two-level 8 × 16 against 1 × 16", "one-level-16", "two-level-8x16", 8.0, 8.0),
    *(
        Claim(f"calls of self-judge, {n} in batches of 8", f"torch/self-1/{n}", f"torch/self-8/{n}", *calls, "requests")
        for n, calls in {16: (8.0, 16 / 2), 32: (8.0, 32 / 4), 100: (7.7, 100 / 13)}.items()
    ),
]
#: How many seconds the GPUs wait, as the same documents say.
CLAIMED_WAITS = {"gpu-wait-sync": 60.0, "gpu-wait-asyncio": 0.0}

GRID = _grid()
SELF = [
    Scenario(f"torch/self-{batch_size}/{n}", n, "self", "torch", batch_size=batch_size)
    for n in SIZES
    for batch_size in BATCH_SIZES
]
_ALL = (
    *(GRID, WIRE, GUARDS, SELF, SOURCES, SWEEP, STEPS, [TRL_STEPS, VERL_MANAGERS]),
    *(PROFILES, [CHANCE], REJECTIONS, CALIBRATED, PREFIXES, PAIRED, OFFLINE, [NIGHTLY_ENGINE, NIGHTLY_CONTROL]),
)
REGISTRY: dict[str, Scenario] = {scenario.id: scenario for family in _ALL for scenario in family}

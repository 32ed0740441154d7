"""The only definition of what is measured: a registry of frozen scenarios. Runners run them; none has its own workload.

`GRID` is every mode at every size on every backend; `CLAIMS` are the settings of the documents this project started
from, with their figures beside the ideal; `SWEEP` is one endpoint under rising concurrency, `STEPS` are a trainer's
steps in the shapes of TRL and verl, `PROFILES` are endpoints of every temper, five batches each, `REJECTIONS` are runs
of rejection sampling, `PREFIXES` are groups of responses as each rubric shows them. A scenario that comes to mean
something else gets another `version`: histories compare only what is the same.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from bench.profiles import endpoints
from rewardcore import Sample, rubrics
from rewardcore.testing.latency import Profile

SIZES = (16, 32, 100, 1024)
BATCH_SIZES = (1, 2, 4, 8, 16)
Backend = Literal["respx", "loopback", "real", "torch", "engine", "rubric"]

#: mode → (rewardcore's mode, its options). Each backend can carry some of them.
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "sync": ("sync", {}),
    "process": ("process", {"workers": 4}),
    "asyncio": ("asyncio", {}),
    "asyncio-httpx": ("asyncio", {"transport": "httpx"}),
    "self": ("self", {}),
}
#: respx does not see aiohttp, so the asyncio mode is driven over httpx there.
BACKEND_MODES: dict[Backend, tuple[str, ...]] = {
    "respx": ("sync", "process", "asyncio-httpx"),
    "loopback": ("sync", "process", "asyncio", "asyncio-httpx"),
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
    batch_size: int = 8  # of the self mode
    responses: int = 1  # to each prompt
    seed: int = 2026
    version: int = 1

    @property
    def group(self) -> str:
        """What stands side by side: the modes of one size. Mocked workers share no clock, so they stand apart."""
        if "/" not in self.id:
            return (
                self.id.split("-")[0]
                if self.id.startswith(("sweep", "step", "profile", "reject", "prefix"))
                else "source documents"
            )
        return f"{self.backend} n={self.n}"

    @property
    def requests(self) -> int:
        """How many an honest run sends: one for each distinct sample; in the self mode, one for each full batch."""
        if self.mode == "self":
            return math.ceil(self.n / self.batch_size)
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
        """The makespan of a perfect scheduler under constant latency: whole waves; None where none is known."""
        if self.backend not in ("respx", "loopback"):
            return None
        return math.ceil(self.requests / self.places) * self.profile.latency


@dataclass(frozen=True)
class Claim:
    """A figure from the source documents: how much faster `after` is than `before`, there and ideally."""

    id: str
    before: str
    after: str
    there: str
    ideal: float


def samples_of(scenario: Scenario) -> list[Sample]:
    """Seeded samples of varied length; with `distinct`, the first ones come again, shuffled among the rest."""
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

PREFIXES = [Scenario(f"prefix-{name}", 32 * 8, "any", "rubric", responses=8) for name in rubrics.BY_NAME]

CLAIMS = [
    Claim("async batch, no cache", "naive-1024", "async-1024", "16×", 1024 / 18),
    Claim("async batch, cache", "naive-1024", "async-1024-cached", "27×", 1024 / 5),
    Claim("sync → asyncio, 100 × 0.7 s", "three-modes-sync", "three-modes-asyncio", "7×", 100 / 2),
    Claim("60 against 20 at once", "sweep-20", "sweep-60", "2.02×", 52 / 18),
    Claim("two-level 8 × 16 against 1 × 16", "one-level-16", "two-level-8x16", "8×", 8.0),
]

GRID = _grid()
SELF = [
    Scenario(f"torch/self-{batch_size}/{n}", n, "self", "torch", batch_size=batch_size)
    for n in SIZES
    for batch_size in BATCH_SIZES
]
REGISTRY: dict[str, Scenario] = {
    scenario.id: scenario
    for scenario in [
        *GRID,
        *SELF,
        *SOURCES,
        *SWEEP,
        *STEPS,
        TRL_STEPS,
        VERL_MANAGERS,
        *PROFILES,
        *REJECTIONS,
        *PREFIXES,
    ]
}

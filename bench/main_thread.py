"""The GPU's thread while a batch is judged beside it: what it loses, and what judging loses to it.

The main thread does steps of fixed work, as a training loop launches kernels. A control does the same steps and judges
nothing; each pair is one control and one judged run, order flipped from pair to pair, so that the neighbours' load
cancels out. Loads: `python` holds the GIL in bytecode, `native` releases it in C, `hog` holds it in C for long.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import rewardcore
from bench.latency import Profile
from bench.scenarios import Scenario, samples_of
from bench.server_process import SimulatedServer
from rewardcore import AsyncioJudge, Endpoint, Sample
from rewardcore.stats import percentile

SCENARIO = Scenario("main-thread", 512, "asyncio", "loopback", profile=Profile(latency=0.2))
BACKGROUNDS = ("thread", "process")
_BUFFER = bytes(400_000)
_NUMBERS = list(range(20_000))


def _python_step() -> object:
    total = 0
    for number in range(6_000):
        total += number * number
    return total


def _native_step() -> object:
    return hashlib.sha256(_BUFFER).digest()


def _hog_step() -> object:
    return [sorted(_NUMBERS, key=int.__neg__) for _ in range(4)]


LOADS: dict[str, Callable[[], object]] = {"python": _python_step, "native": _native_step, "hog": _hog_step}


@dataclass(frozen=True)
class Effect:
    """Medians over pairs. `loss`: share of the steps lost; `p99`: step time, judged over control."""

    loss: float
    p99: float
    efficiency: float
    submit_seconds: float
    waited: float


def measure(load: str, background: str, pairs: int) -> Effect:
    step, samples = LOADS[load], samples_of(SCENARIO)
    with SimulatedServer(SCENARIO.profile, seed=SCENARIO.seed) as server:
        endpoint = Endpoint(server.base_url, model="judge")
        options = {"background": background, "cache": None, "max_concurrent": SCENARIO.max_concurrent}
        with rewardcore.open_judge("asyncio", endpoint, **options) as judge:
            judge.judge([Sample("warm-up", str(place)) for place in range(SCENARIO.places)])
            seen = [_pair(judge, samples, step, judged_first=bool(pair % 2)) for pair in range(pairs)]
    return Effect(*(statistics.median(column) for column in zip(*seen, strict=True)))


def _pair(
    judge: AsyncioJudge, samples: list[Sample], step: Callable[[], object], judged_first: bool
) -> tuple[float, float, float, float, float]:
    seconds = SCENARIO.ideal or 0.0
    control = None if judged_first else _steps(step, seconds)
    started = time.perf_counter()
    pending = judge.submit(samples)
    submitted = time.perf_counter()
    judged = _steps(step, seconds)
    while not pending.done():  # only the steps beside judging count; these let it finish
        step()
    finished = time.perf_counter()
    pending.result()
    control = control or _steps(step, seconds)
    loss = 1.0 - (len(judged) / sum(judged)) / (len(control) / sum(control))
    p99 = (percentile(sorted(judged), 0.99) or 0.0) / (percentile(sorted(control), 0.99) or 1.0)
    return loss, p99, seconds / (finished - started), submitted - started, pending.waited


def _steps(step: Callable[[], object], seconds: float) -> list[float]:
    """The duration of every step that fits."""
    durations = []
    before = time.perf_counter()
    end = before + seconds
    while before < end:
        step()
        after = time.perf_counter()
        durations.append(after - before)
        before = after
    return durations

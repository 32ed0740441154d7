"""The GPU's thread while a batch is judged beside it: what it loses, and what judging loses to it.

The main thread does steps of fixed work, as a training loop launches kernels. The control does the same steps and
judges nothing, half of them before each judged run and half after, so that a drift of the machine cancels and shows.
The step is Python code, which holds the GIL and hands it on often; C code that releases it, as kernels do; or C code
that holds it for long, as a tokeniser may.
"""

from __future__ import annotations

import hashlib
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import rewardcore
from bench.runner import UnequalWork
from bench.scenarios import Scenario, samples_of
from rewardcore import Endpoint, Judge, Sample
from rewardcore.stats import percentile
from rewardcore.testing.latency import Profile
from rewardcore.testing.server_process import SimulatedServer

SCENARIO = Scenario("main-thread", 1024, "asyncio", "loopback", profile=Profile(latency=0.2))
#: background → pairs: the process is held to a few per cent, which takes more of them.
BACKGROUNDS = {"thread": 1, "process": 2}
CONTROL_SECONDS = 0.6
_BUFFER = bytes(400_000)
_NUMBERS = list(range(20_000))


def _python_step() -> object:
    total = 0
    for number in range(6_000):
        total += number * number
    return total


def _native_step() -> object:
    return hashlib.sha256(_BUFFER).digest()


def _holding_step() -> object:
    return [sorted(_NUMBERS, key=int.__neg__) for _ in range(4)]


LOADS: dict[str, Callable[[], object]] = {
    "Python code": _python_step,
    "C without the GIL": _native_step,
    "C that holds the GIL": _holding_step,
}


@dataclass(frozen=True)
class Effect:
    """Medians over pairs. `loss`: share of the speed lost; `noise`: how far the control moved against itself.

    A loss below the noise is none that was seen. `p99`: step time, judged over control.
    """

    loss: float
    noise: float
    p99: float
    efficiency: float
    submit_seconds: float
    blocked: float


def measure(load: str, background: str, pairs: int) -> Effect:
    step, samples = LOADS[load], samples_of(SCENARIO)
    with SimulatedServer(SCENARIO.profile, seed=SCENARIO.seed) as server:
        endpoint = Endpoint(server.base_url, model="judge")
        options = {"background": background, "cache": None, "max_concurrent": SCENARIO.max_concurrent}
        with rewardcore.open_judge("asyncio", endpoint, **options) as judge:
            judge.judge([Sample("warm-up", str(place)) for place in range(SCENARIO.places)])
            seen = [_pair(judge, samples, step) for _ in range(pairs)]
    return Effect(*(statistics.median(column) for column in zip(*seen, strict=True)))


def _pair(
    judge: Judge, samples: list[Sample], step: Callable[[], object]
) -> tuple[float, float, float, float, float, float]:
    seconds = SCENARIO.ideal or 0.0
    before = _steps(step, CONTROL_SECONDS)
    started = time.perf_counter()
    pending = judge.submit(samples)
    submitted = time.perf_counter()
    finished: list[float] = []
    # A watcher sees the end as it comes; the main thread would look only after its step.
    watcher = threading.Thread(target=lambda: (pending.result(), finished.append(time.perf_counter())))
    watcher.start()
    judged = _steps(step, seconds)
    while not pending.done():  # only the steps beside judging count; these let it finish
        step()
    blocked = time.perf_counter()
    verdicts = pending.result()
    blocked = time.perf_counter() - blocked
    watcher.join()
    if any(verdict.status != "ok" for verdict in verdicts):
        raise UnequalWork("main-thread: not every sample was judged")
    after = _steps(step, CONTROL_SECONDS)
    control = before + after
    loss = 1.0 - _rate(judged) / _rate(control)
    noise = abs(1.0 - _rate(before) / _rate(after))
    p99 = (percentile(sorted(judged), 0.99) or 0.0) / (percentile(sorted(control), 0.99) or 1.0)
    return loss, noise, p99, seconds / (finished[0] - started), submitted - started, blocked


def _rate(durations: list[float]) -> float:
    return len(durations) / sum(durations)


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

"""Judges on the endpoint itself what was predicted for it, within a cap of its own; retries count against it.

A judge of its own for each size, as a first call would find it: its connections are opened while the clock runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import rewardcore
from bench.calibrate.predict import Row
from bench.calibrate.probe import Tell, fresh_samples
from bench.metered import Meter
from bench.scenarios import MODES
from rewardcore import Endpoint
from rewardcore.rubrics import Rubric

#: A size may take so many times what was predicted, or so many seconds, before it is given up.
_TIMES, _SECONDS = 10.0, 60.0


@dataclass(frozen=True)
class Observed:
    """One size; `seconds` is None where not every sample had a reply, and `why` says so."""

    n: int
    predicted: float
    seconds: float | None
    why: str = ""

    @property
    def off(self) -> float | None:
        return None if self.seconds is None else self.predicted / self.seconds - 1.0


def sizes_within(row: Row, max_requests: int) -> list[int]:
    """The sizes that fit under the cap, smallest first, of those that have a prediction."""
    chosen: list[int] = []
    for n, seconds in row.makespans.items():
        if seconds is not None and sum(chosen) + n <= max_requests:
            chosen.append(n)
    return chosen


def verify(endpoint: Endpoint, rubric: Rubric, row: Row, max_requests: int, tell: Tell, *, seed: int) -> list[Observed]:
    meter = Meter(max_requests, most_silence=_SECONDS)
    return [
        _observe(endpoint, rubric, row, n, meter, tell, seed + index)
        for index, n in enumerate(sizes_within(row, max_requests))
    ]


def _observe(endpoint: Endpoint, rubric: Rubric, row: Row, n: int, meter: Meter, tell: Tell, seed: int) -> Observed:
    predicted = row.makespans[n] or 0.0
    mode, options = MODES[row.mode]
    deadline = max(_SECONDS, _TIMES * predicted)
    limits = {"max_concurrent": row.at_once, "deadline": deadline, "cache": None, "wrap_transport": meter.wrap}
    samples = fresh_samples(n, seed)
    meter.begin()
    with rewardcore.open_judge(mode, endpoint, rubric=rubric, **limits, **options) as judge:  # type: ignore[call-overload]
        started = time.perf_counter()
        verdicts = judge.judge(samples, progress=lambda now: tell(f"judging {n}", now.done, now.total))
        seconds = time.perf_counter() - started
    lost = [verdict for verdict in verdicts if verdict.status in ("failed", "timeout")]
    if lost:
        return Observed(n, predicted, None, f"{len(lost)} of {n} had no reply: {lost[0].error}")
    return Observed(n, predicted, seconds)

"""How a caller hands its samples over and collects the verdicts: in one call, each in its own, or as a stream.

Seconds are those of the stage's clock, virtual or real. In virtual time they are exact, and so are two figures that
time does not show there: what `submit` does in the caller's own thread, counted in bytecodes of rewardcore, and what a
stream leaves behind, in bytes that rewardcore has allocated and not let go of.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import rewardcore
from bench.scenarios import Calls
from bench.virtual import VirtualClock
from rewardcore import Judge, Sample, Verdict
from rewardcore.clock import Clock

PACKAGE = str(Path(rewardcore.__file__).parent)
#: When a stream's memory is read: after so many samples, and so many before its end, when as many are on their way.
SETTLED, BEFORE_THE_END = 256, 64
#: Virtual seconds that pass only when the judge's thread has done all that it had to do at this instant.
MOMENT = 1e-3
#: Bytes of a small object, to which what a stream leaves behind is rounded: tables are resized at any moment.
SMALL = 32


class Tally:
    """Of verdicts as they come: how they ended, a digest over all that every mode must agree on, and the figures.

    Whoever measures memory keeps neither figures nor places: they are objects that rewardcore has made.
    """

    def __init__(self, keeps_figures: bool = True) -> None:
        self.statuses: Counter[str] = Counter()
        self.scores: list[float | None] = []
        self.latencies: list[float] = []
        self._keeps_figures = keeps_figures
        self._lines: list[bytes] = []

    def add(self, place: int, verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1
        line = f"{verdict.status} {verdict.score!r} {verdict.text!r}"
        self._lines += [b""] * (place + 1 - len(self._lines))
        self._lines[place] = hashlib.sha256(line.encode()).digest()
        if self._keeps_figures:
            self.scores.append(verdict.score)
            self.latencies.append(round(verdict.latency, 9))

    @property
    def digest(self) -> str:
        """In the samples' order, whatever the order in which they came."""
        return hashlib.sha256(b"".join(self._lines)).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """`seconds` is the makespan, `waited` how long the caller was blocked."""

    seconds: float
    waited: float
    tally: Tally = field(repr=False)
    submit_bytecodes: int | None = None
    left_behind: int | None = None  # bytes a sample, of a stream


def hand_over(
    judge: Judge, samples: list[Sample], calls: Calls, compute: float, clock: Clock, forget: Callable[[], object]
) -> Outcome:
    """`compute` is what the caller does between submit and result; `forget` empties the endpoint's memory."""
    if calls == "single":
        return _each_in_a_call(judge, samples, clock)
    if calls == "stream":
        return _as_a_stream(judge, samples, clock, forget)
    return _in_one_call(judge, samples, compute, clock)


def _in_one_call(judge: Judge, samples: list[Sample], compute: float, clock: Clock) -> Outcome:
    started = clock.now()
    with _held(clock):
        # Counting takes time, which is nothing where time is virtual.
        with counting_bytecodes() if isinstance(clock, VirtualClock) else contextlib.nullcontext() as count:
            pending = judge.submit(samples)
        if compute:
            clock.sleep(compute)
        verdicts = pending.result()  # time passes in here, and not between these lines
    bytecodes = count.total if count is not None else None
    return Outcome(_since(started, clock), round(pending.waited, 9), tallied(verdicts), bytecodes)


def _each_in_a_call(judge: Judge, samples: list[Sample], clock: Clock) -> Outcome:
    started = clock.now()
    with _held(clock):
        pending = [judge.submit([sample]) for sample in samples]
        verdicts = [verdict for each in pending for verdict in each.result()]
    return Outcome(_since(started, clock), round(sum(each.waited for each in pending), 9), tallied(verdicts))


def _as_a_stream(judge: Judge, samples: list[Sample], clock: Clock, forget: Callable[[], object]) -> Outcome:
    """One at a time, verdicts come at instants of their own, so that as much is on its way after every chunk."""
    tally, held = Tally(keeps_figures=False), []
    marks = (SETTLED, len(samples) - BEFORE_THE_END)

    async def consume() -> None:
        done = 0
        async for index, verdict in judge.astream(samples):
            done += 1
            tally.add(index, verdict)
            if done in marks:
                if isinstance(clock, VirtualClock):
                    await asyncio.sleep(MOMENT)
                forget()
                held.append(_held_bytes())

    started = clock.now()
    tracemalloc.start()
    try:
        clock.run(consume()) if isinstance(clock, VirtualClock) else asyncio.run(consume())
    finally:
        tracemalloc.stop()
    seconds = _since(started, clock)
    each = (held[1] - held[0]) / (marks[1] - marks[0])
    return Outcome(seconds, seconds, tally, left_behind=SMALL * round(each / SMALL))


def _held_bytes() -> int:
    """What rewardcore has allocated, and anybody still holds."""
    gc.collect()
    ours = tracemalloc.Filter(True, f"{PACKAGE}/*")
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


class Bytecodes:
    """Counts the bytecodes of rewardcore that this thread runs: its work, whatever the machine."""

    def __init__(self) -> None:
        self.total = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Bytecodes | None:
        """As sys.settrace calls it: first for every frame, then for what happens in those that it asked for."""
        if event == "call":
            if not frame.f_code.co_filename.startswith(PACKAGE):
                return None
            frame.f_trace_opcodes = True
        self.total += event == "opcode"
        return self


@contextlib.contextmanager
def counting_bytecodes() -> Iterator[Bytecodes]:
    before, count = sys.gettrace(), Bytecodes()
    sys.settrace(count)
    try:
        yield count
    finally:
        sys.settrace(before)


def tallied(verdicts: list[Verdict]) -> Tally:
    tally = Tally()
    for place, verdict in enumerate(verdicts):
        tally.add(place, verdict)
    return tally


def _since(started: float, clock: Clock) -> float:
    """To the nanosecond, which is what the virtual clock counts in: a difference of floats depends on when it began."""
    return round(clock.now() - started, 9)


def _held(clock: Clock) -> contextlib.AbstractContextManager[None]:
    return clock.hold() if isinstance(clock, VirtualClock) else contextlib.nullcontext()

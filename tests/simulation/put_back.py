"""The code of defects that were there once, or may not come: `defects.py` says what each was, and where it goes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from rewardcore import Sample, notices
from rewardcore.calls import Batch, Call, Driver
from rewardcore.failures import DeadlinePassed
from rewardcore.http import reading
from rewardcore.http.cache import SqliteCache
from rewardcore.http.cache_file import insist
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.drivers.remote import RemoteDriver
from rewardcore.http.engine import Engine, Flight, GiveUp
from rewardcore.http.pace.refusals import Row
from rewardcore.http.pace.states import Window
from rewardcore.http.processes import SpawnedChild
from rewardcore.http.request import Request, RequestBuilder
from rewardcore.http.transports.worker_pool import WorkerPool
from rewardcore.judge import Judge
from rewardcore.notices import Losses, Tally
from rewardcore.reply import Answer
from rewardcore.stats import Stats

# The engine's.


def give_up_without_forgetting(self: Engine, flight: Flight) -> GiveUp:
    self._late.pop(flight, None)
    flight.given_up = True
    self._dying += 1
    return GiveUp(flight)


def gone_with_its_passengers(self: Engine, flight: Flight) -> None:
    self._landed(flight)
    self._land(flight, Answer(failure=DeadlinePassed("no answer came, long after the deadline")))


def make_room_only_for_a_new_call(take: Callable[..., Any]) -> Callable[..., Any]:
    def taken(self: Engine, now: float) -> Any:
        late, self._late = self._late, {}
        try:
            return take(self, now)
        finally:
            self._late = late | self._late

    return taken


def build_for_any_draw(build: Callable[..., Request]) -> Callable[..., Request]:
    def built(self: RequestBuilder, sample: Sample) -> Request:
        return build(self, replace(sample, draw=0))

    return built


def raise_it(_: object, error: BaseException) -> None:
    raise error


def step_aside_for_nobody(self: Engine) -> tuple[float, Flight | None]:
    first: tuple[float, Flight | None] = float("inf"), None
    for flight in self._air:
        overtaken_by = self.pace.last_good - flight.number - self.stats.in_flight
        when = flight.sent_at + self.patience.seconds(overtaken_by, flight.stalls)
        if when < first[0]:
            first = when, flight
        if not flight.stalls:
            break
    return first


def open_into_what_is_broken(open_call: Callable[..., None]) -> Callable[..., None]:
    def opened(self: Engine, call: Call) -> None:
        ended_by = next((other.ended_by for other in self._open if other.ended_by is not None), None)
        open_call(self, call)
        call.ended_by = call.ended_by or ended_by

    return opened


def end_and_keep_what_is_unsent(self: Engine, call: Call) -> None:
    if call in self._open:
        del self._open[call]
        self._deadlines.lost()


def again_without_faults(again: Callable[[Flight], Flight]) -> Callable[[Flight], Flight]:
    def other(self: Flight) -> Flight:
        found = again(self)
        found.faults = ()
        return found

    return other


def rate_of_a_tenth(headers: Any, usage: Any, now: Any, read: Callable[..., Any] = reading.read_quota) -> Any:
    quota = read(headers, usage, now)
    return quota and quota._replace(reset=10 * quota.reset)


def told_of_a_bucket(told: Callable[..., None]) -> Callable[..., None]:
    """And the slowest rate that was ever read stays."""

    def heard(self: Any, quota: Any, number: int, at: float) -> None:
        told(self, quota, number, at)
        rate = (quota.limit - quota.left) / max(quota.reset, 1e-3)
        self.slowest = min(getattr(self, "slowest", math.inf), rate)

    return heard


def at_the_slowest_rate(self: Any, now: float, sent: int) -> float:
    slowest = getattr(self, "slowest", math.inf)
    return self._at + (sent + 1 - self._number) / slowest if slowest else math.inf


def a_row_of_one(self: Row, sent: int) -> bool:
    return bool(self._numbers)


def resumed_as_slowly_as_probed(resumed: Callable[..., Window]) -> Callable[..., Window]:
    def slowly(self: Window, sent: int) -> Window:
        self.places = 1 / 8
        return resumed(self, sent)

    return slowly


# What is told, and to whom.


def say_it(level: int, message: str, *arguments: object, exc_info: Any = None) -> None:
    notices.log.log(level, message, *arguments, exc_info=exc_info)


def finish_when_all_are_told(self: Batch) -> None:
    self._ended(self._verdicts)  # type: ignore[arg-type]
    self._end(is_cancelled=False)


def settle_as_long_as_nobody_raises(self: Call, index: int, verdict: Any) -> None:
    if index in self.waiting:
        del self.waiting[index]
        self._tell(index, verdict)
        if not self.waiting:
            self._finished()
            self.let_go()


class SharedLosses(Losses):
    """One tally for whoever comes."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._tally, self._samples, self._calls = Tally(), 0, 0

    def ended(self, tally: Tally, samples: int) -> None:
        self.interrupted_ended(tally, samples)

    def flush(self) -> None:
        self.interrupted_flush()

    def interrupted_ended(self, tally: Tally, samples: int) -> None:
        if not tally.kinds:
            return
        self._tally.kinds.update(tally.kinds)
        self._tally.why = tally.why | self._tally.why
        self._samples += samples
        self._calls += 1
        now = self._now()
        self._may_tell = min(notices._AT_FIRST, self._may_tell + (now - self._told_at) / notices.QUIET_SECONDS)
        self._told_at = now
        if self._may_tell >= 1:
            self._may_tell -= 1
            self.flush()

    def interrupted_flush(self) -> None:
        tally, samples = self._tally, self._samples
        self._tally, self._samples, self._calls = Tally(), 0, 0
        if tally.kinds:
            why = tally.why[tally.kinds.most_common(1)[0][0]]
            notices.say(30, "%s", f"{tally.kinds.total()} of {samples} not judged ({why})")


def interrupted_stream(self: Judge, samples: Iterable[Sample]) -> Any:
    something = self._driver.clock.event()
    with self._streaming(samples, something.set) as stream:
        while stream.take():
            while not stream.arrived:
                something.clear()
                self._wait(something)
            for _ in range(len(stream.arrived)):
                yield stream.receive()


def end_for_the_first(self: Driver) -> None:
    if self._closer:
        return
    self._closer["by"] = 0, self.clock.event()
    self.close()


# Drivers, caches and processes.


def left_before_it_began(self: LoopDriver, task: asyncio.Task[None]) -> None:
    self._workers.pop(task)


def write_what_is_no_longer_there(self: SqliteCache, gather_seconds: float = 0.0) -> None:
    from rewardcore.http import cache

    cache.time.sleep(gather_seconds)
    rows, self._unwritten, self._gathering = self._unwritten, {}, False
    try:
        if rows and self._broken is None:
            insist(lambda: self._commit(rows))
    except Exception as error:
        self._step_aside(error)


def lose_a_child_only(self: RemoteDriver, reason: str) -> None:
    before, latest = self._figures
    self._figures = before + latest, Stats()
    for answered in self._asked.values():
        answered.set()
    self._asked.clear()


def give_up_silently_while_it_starts(give_up: Callable[..., None]) -> Callable[..., None]:
    def gave_up(self: SpawnedChild, reason: str) -> None:
        if self.ready.done():
            give_up(self, reason)
        elif not self.reason:
            self.reason = reason
            self.ready.cancel()

    return gave_up


async def send_and_forget_who_died(self: WorkerPool, body: bytes) -> Answer:
    worker = self._take()
    try:
        return await worker.ask(body)
    finally:
        if worker.child.reason:
            self._workers.pop(worker, None)
            await asyncio.shield(worker.child.end())
        else:
            self._idle.append(worker)

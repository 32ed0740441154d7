"""`background="process"`, the parent's side: calls go to the one spawned child that judges, verdicts come back.

Only packed samples, verdicts, figures and log lines cross the pipe, so that the parent's interpreter is hardly
disturbed. Every sample is packed by itself: one that cannot be read at the other end fails alone. Nothing here trusts
the child to answer: a call ends at its deadline, `stats` and `close` in their own time, whatever has become of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import pickle
import threading
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ...calls import Call, Driver, Run, check_may_wait
from ...clock import Clock, Event
from ...failures import DeadlinePassed, Failure, JudgeClosed, RewardcoreError, WorkerDied
from ...notices import say
from ...reply import Answer
from ...sample import Sample
from ...stats import Stats
from ...verdict import Verdict
from ..cache_file import BUSY_SECONDS
from ..processes import Child, OpenChild
from .elsewhere import pack
from .loop_thread import LoopThread

#: The child ends its calls at their deadline by itself, and knows better why they were not done. So the parent looks
#: so long after the deadline whether it has, and again, so often at most, while verdicts of that call come in. This
#: begins when the parent notices the deadline: if it was suspended itself, what waits in the pipe is read first.
_GRACE_SECONDS, _LOOKS = 0.5, 4
#: How long `stats` waits for the figures of this moment, before it tells the last that are known.
_ASKING_SECONDS = 0.5
#: How long a child may take to put its cache on disk, however busy that is.
_CLOSING_SECONDS = 2 * BUSY_SECONDS
_fields = attrgetter(*Sample.__slots__)


class RemoteDriver(Driver):
    """The parent's side: calls out, verdicts in. A child that dies fails its calls; the next call starts another.

    It is the listener of its children. The first is started at once and is not waited for.
    """

    def __init__(self, clock: Clock, thread: LoopThread, open_child: OpenChild) -> None:
        super().__init__(clock)
        self._open_child = open_child
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._alarms: dict[int, asyncio.TimerHandle] = {}
        self._overdue: dict[int, int] = {}  # samples that were counted as late here, and not yet by the child
        self._figures = Stats(), Stats()  # of the children that are gone, and of this one
        self._asked: dict[int, Event] = {}
        self._is_deaf = False  # it did not answer the last who asked, and has said nothing since
        self._ending: dict[asyncio.Task[None], None] = {}
        self._posting = threading.RLock()  # a stream that the garbage collector ends may post in the midst of a post
        self._closed = False
        self._thread = thread
        self._child = thread.run(self._hire())

    # Called from any thread.

    def begin(self, call: Call) -> None:
        if not self._post(self._begin, call):
            raise RewardcoreError("this judge is closed; open another")

    def abandon(self, call: Call) -> None:
        self._post(self._abandon, call)

    def release(self, run: Run) -> None:
        self._post(self._release, run)

    def stats(self) -> Stats:
        check_may_wait()
        answered = self.clock.event()
        if not self._is_deaf and self._post(self._ask, answered) and not answered.wait(_ASKING_SECONDS):
            self._is_deaf = True
        before, latest = self._figures
        return before + latest

    def close(self) -> None:
        check_may_wait()
        with self._posting:
            self._closed = True
        self._thread.run(self._shut())
        self._thread.release()

    def _end_beside(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._thread.loop.call_soon_threadsafe(super()._end_beside)

    def _post(self, action: Callable[[Any], None], subject: Call | Run | Event) -> bool:
        with self._posting:
            if not self._closed:
                self._thread.loop.call_soon_threadsafe(action, subject)
            return not self._closed

    # Called on the loop.

    async def _hire(self) -> Child:
        """With its pipe at hand: beside a busy main thread every turn of the loop may take its time."""
        child = self._open_child(self)
        await child.connecting
        return child

    def _begin(self, call: Call) -> None:
        call.number = number = next(self._numbers)
        self._calls[number] = call
        seconds = call.deadline - self.clock.now()
        self._alarms[number] = self._thread.loop.call_later(seconds, self._due, number, _LOOKS, len(call.waiting) + 1)
        try:
            if self._child.reason:
                self._bury(self._child)
                self._child = self._open_child(self)
            if call.run is not None and not call.run.number:
                call.run.number = next(self._numbers)
            self._child.write(_pack_call(call))
        except Exception as error:
            self._fail(number, Failure(f"the call did not reach the process that judges: {_told(error)}"))

    def _bury(self, child: Child) -> None:
        task = self._thread.loop.create_task(child.end())
        self._ending[task] = None
        task.add_done_callback(self._ending.pop)

    def _release(self, run: Run) -> None:
        self._child.write(pack("release", run.number))

    def _abandon(self, call: Call) -> None:
        call.let_go()
        if self._over(call.number):
            self._child.write(pack("abandon", call.number))

    def _over(self, number: int) -> Call | None:
        if (call := self._calls.pop(number, None)) is not None:
            self._alarms.pop(number).cancel()
        return call

    def _due(self, number: int, looks: int, waited_before: int) -> None:
        """Its deadline has come, or its grace is over."""
        waiting = len(self._calls[number].waiting)
        if looks and waiting < waited_before:
            self._alarms[number] = self._thread.loop.call_later(_GRACE_SECONDS, self._due, number, looks - 1, waiting)
        else:
            self._overdue[number] = waiting
            self._fail(number, DeadlinePassed("not done by the deadline: the process that judges does not answer"))

    def _fail(self, number: int, failure: Failure) -> None:
        """Whatever of this call has no verdict yet."""
        call, verdict = self._over(number), Answer(failure=failure).verdict()
        for index in sorted(call.waiting) if call is not None else ():
            self._figures[0].count_failure(failure.kind)
            self._settle(call, index, verdict)  # type: ignore[arg-type]

    def _settle(self, call: Call, index: int, verdict: Verdict) -> None:
        """What a caller raises when it is told is logged, and keeps no verdict from anybody else."""
        try:
            call.settle(index, verdict)
        except Exception as error:
            say(logging.ERROR, "%s", f"a caller could not be told of its verdict: {_told(error)}")

    def _ask(self, answered: Event) -> None:
        if self._child.reason or not self._child.ready.done():
            answered.set()
            return
        self._asked[ticket := next(self._numbers)] = answered
        self._child.write(pack("stats", ticket))

    async def _shut(self) -> None:
        child = self._child
        child.write(pack("close"))
        is_at_work = child.ready.done() and not child.reason  # else it has nothing to put on disk
        ends = child.end(_CLOSING_SECONDS if is_at_work else 0.0), *self._ending
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if error is not None:
                say(logging.ERROR, "%s", f"a child process could not be ended: {_told(error)}")
        self.lost("")

    # Called by the child.

    def received(self, message: bytes) -> None:
        """Whatever is raised here passes to the child, which is then given up, and so all of its calls end."""
        self._is_deaf = False
        kind, *content = pickle.loads(message)
        getattr(self, f"on_{kind}")(*content)

    def on_alive(self) -> None:
        """It is still closing."""

    def on_log(self, level: int, message: str) -> None:
        say(level, "%s", message)

    def on_stats(self, ticket: int, figures: Stats) -> None:
        before, latest = self._figures
        latest.latencies.extend(figures.latencies)
        figures.latencies = latest.latencies
        self._figures = before, figures
        if (answered := self._asked.pop(ticket, None)) is not None:
            answered.set()

    def on_verdicts(self, number: int, verdicts: list[tuple[Any, ...]], figures: Stats) -> None:
        self.on_stats(0, figures)
        if (call := self._calls.get(number)) is not None:
            for index, *values in verdicts:
                self._settle(call, index, Verdict(*values))
            if not call.waiting:
                self._over(number)
        elif counted := self._overdue.pop(number, 0):
            late = min(counted, sum(values[1] == "timeout" for values in verdicts))
            self._figures[0].failed[DeadlinePassed.__name__] -= late
            if counted > len(verdicts):
                self._overdue[number] = counted - len(verdicts)

    def lost(self, reason: str) -> None:
        """The child is gone, as it should be after `close` and at no other time."""
        failure: Failure = WorkerDied(f"{reason}; the next call starts another")
        if self._closed:
            failure = JudgeClosed("the judge was closed before this sample was judged")
        before, latest = self._figures
        total = before + latest
        total.in_flight = 0
        self._figures = total, Stats()
        self._overdue.clear()
        for number in list(self._calls):
            self._fail(number, failure)
        for answered in self._asked.values():
            answered.set()
        self._asked.clear()


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _pack_call(call: Call) -> bytes:
    samples, call.fresh = call.fresh, deque()
    rows: list[tuple[int, bytes | str]] = []
    for index, sample in samples:
        try:
            rows.append((index, pack(*_fields(sample))))
        except Exception as error:
            rows.append((index, f"{type(error).__name__}: {error}"))
    return pack("begin", call.number, rows, call.deadline, None if call.run is None else call.run.number)

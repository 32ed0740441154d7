"""The driver on an event loop: many requests at once, while the caller's thread does its own work.

A worker is a task that has a request in flight, and nothing else: it is hired for a flight, goes on to the next one
there is, and leaves when there is none. So the number of tasks is the number of requests in flight, by construction.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable

from ...calls import Call, Driver
from ...clock import Clock
from ...failures import Failure, RewardcoreError, described
from ...reply import Answer
from ...stats import Stats
from ..engine import Engine
from ..flight import Flight, GiveUp
from ..transports import Transport
from .loop_thread import LoopThread

#: Replies that come as quickly as this come by the handful: read together, and the next sent together, they cost a
#: quarter less than one by one. For slower ones it would only mean to wait, a turn of the loop at a time.
_QUICK_SECONDS = 0.025


class LoopDriver(Driver):
    """`open_transport` is called on the loop, with the first request; `thread` is released at the end."""

    def __init__(
        self,
        clock: Clock,
        engine: Engine,
        open_transport: Callable[[], Transport],
        close_engine: Callable[[Engine], None],
        thread: LoopThread,
    ) -> None:
        super().__init__(clock)
        self.engine = engine
        self._open_transport = open_transport
        self._close_engine = close_engine
        self._thread = thread
        self.loop = thread.loop
        self._transport: Transport | None = None
        self._workers: dict[asyncio.Task[None], Flight | None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._posted: deque[tuple[Callable[[Call], None], Call]] = deque()
        self._posting = threading.RLock()  # a stream that the garbage collector ends may post in the midst of a post
        self._closed = False

    # Called from any thread.

    def begin(self, call: Call) -> None:
        if not self._post(self.engine.open, call):
            raise RewardcoreError("this judge is closed; open another")

    def abandon(self, call: Call) -> None:
        self._post(self._abandon, call)

    def stats(self) -> Stats:
        figures = self.engine.stats.snapshot()
        figures.pace = self.engine.pace.told
        return figures

    def close(self) -> None:
        with self._posting:  # what was posted before is read before; nothing can be posted after
            self._closed = True
        try:
            self._thread.run(self.shut())
        finally:
            self._thread.release()
            self._close_engine(self.engine)

    def _end_beside(self) -> None:
        # A thread may not start wherever the garbage collector runs: in the midst of another's start it would wait.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(super()._end_beside)

    def _post(self, action: Callable[[Call], None], call: Call) -> bool:
        """One wake-up of the loop for however many calls have gathered."""
        with self._posting:
            if self._closed:
                return False
            is_first = not self._posted
            self._posted.append((action, call))
            if is_first:
                self.loop.call_soon_threadsafe(self._read_post)
            return True

    # Called on the loop.

    def _read_post(self) -> None:
        with self._posting:
            posted, self._posted = self._posted, deque()
        for action, call in posted:
            try:
                action(call)
            except Exception as error:
                self.engine.rescue(error, [call], self.clock.now())
        self._pump()

    def _abandon(self, call: Call) -> None:
        self.engine.abandon(call, self.clock.now())

    def _pump(self) -> None:
        """Do what the engine says until it says when to ask again."""
        while (flight := self._step()) is not None:
            task = self.loop.create_task(self._work(flight))
            self._workers[task] = flight
            flight.carrier = task
            task.add_done_callback(self._left)

    def _step(self) -> Flight | None:
        """The next flight to carry; or None, with the alarm set for when there may be one."""
        while True:
            step = self.engine.take(self.clock.now())
            if isinstance(step, Flight):
                return step
            if isinstance(step, GiveUp):
                step.flight.carrier.cancel()
            else:
                self._set_alarm(step)
                return None

    def _set_alarm(self, seconds: float) -> None:
        at = self.clock.now() + seconds
        if at >= self._alarm_at and seconds < math.inf:
            return  # it rings before, and is set again then
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if seconds == math.inf else self.loop.call_later(seconds, self._ring)
        self._alarm_at = at

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        self._pump()

    async def _work(self, flight: Flight) -> None:
        engine, workers, task = self.engine, self._workers, asyncio.current_task()
        assert task is not None
        if self._transport is None:
            self._transport = self._open_transport()
        send, starting = self._transport.send, getattr(self._transport, "starting", None)
        following: Flight | None = flight
        is_quick = False
        while following is not None:
            flight = following
            try:
                if is_quick:
                    await asyncio.sleep(0)
                if starting is not None and (start := starting()) is not None:
                    engine.hold(flight)
                    self._pump()  # one that was sent long before it may have to step aside earlier
                    await start
                    engine.sent(flight, self.clock.now())
                    self._pump()  # and so the alarm is set for when it will have stalled
                reply = await send(flight.request.body)
                if is_quick:
                    await asyncio.sleep(0)
                if isinstance(reply, Answer):
                    answer: Answer | None = reply  # a worker process has read it
                else:
                    answer = Answer(reply) if engine.reads_sample else engine.read(reply)
            except Failure as failure:
                answer = Answer(failure=failure)
            except asyncio.CancelledError:
                if not flight.given_up or self._closed:
                    raise
                task.uncancel()
                answer = None
            except (Exception, SystemExit) as error:
                answer = Answer(failure=Failure(described(error)))
            workers[task] = None
            if answer is None:
                engine.gone(flight)
            else:
                engine.settle(flight, answer, self.clock.now())
                is_quick = flight.latency < _QUICK_SECONDS
            if (following := self._step()) is not None:
                workers[task] = following
                following.carrier = task
                if not engine.is_full:
                    self._pump()
                elif self._alarm_at > engine.look_by:  # all may stall, and nobody settles
                    self._set_alarm(engine.look_by - following.sent_at)

    def _left(self, task: asyncio.Task[None]) -> None:
        """A worker has left; if it still had a flight, it was ended before it began, or by a defect."""
        flight = self._workers.pop(task)
        error = None if task.cancelled() else task.exception()
        if flight is None and error is None:
            return
        if flight is None:
            self.engine.rescue(error, [], self.clock.now())  # type: ignore[arg-type]
        elif error is None:
            self.engine.gone(flight)
        else:
            self.engine.settle(flight, Answer(failure=Failure(described(error))), self.clock.now())
        if not self._closed:
            self._pump()

    async def shut(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self.engine.close(self.clock.now())
        for task in self._workers:
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await asyncio.sleep(0)  # their callbacks
        if self._transport is not None:
            await self._transport.close()
            await asyncio.sleep(0)  # closed transports let go of their sockets in the next turn of the loop

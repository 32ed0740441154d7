"""The asyncio mode: many requests at once on one event loop, while the caller's thread does its own work.

A worker is a task that has a request in flight, and nothing else: it is hired for a flight, goes on to the next one
there is, and leaves when there is none. So the number of tasks is the number of requests in flight, by construction.
A call that passes its deadline is left, not cancelled; what it had in the air may still reach the cache for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any, Literal, Protocol

from .background import BackgroundLoop
from .crew import Crew
from .endpoint import Endpoint
from .engine import Call, Flight
from .failures import ConfigurationError, DeadlinePassed, Failure
from .judge import AsyncioJudge
from .reply import Answer, Reply, grade
from .settings import Settings
from .stats import Stats

#: How long a request may outlive the last call that wanted it.
LATE_SECONDS = 30.0

TransportName = Literal["aiohttp", "httpx"]


class Transport(Protocol):
    async def send(self, body: bytes) -> Reply: ...

    async def close(self) -> None: ...


def open(
    endpoint: Endpoint,
    *,
    transport: TransportName = "aiohttp",
    background: Literal["thread", "process"] = "thread",
    **options: Any,
) -> AsyncioJudge:
    settings = Settings(endpoint, **options)
    if transport not in ("aiohttp", "httpx"):
        raise ConfigurationError(f'transport must be "aiohttp" or "httpx", not {transport!r}')
    if background not in ("thread", "process"):
        raise ConfigurationError(f'background must be "thread" or "process", not {background!r}')
    hire: Callable[[], Crew] = functools.partial(AsyncioCrew, settings, transport)
    if background == "process":
        from .child_judge import ChildCrew

        hire = functools.partial(ChildCrew, settings, transport)
    limit = settings.max_concurrent
    return AsyncioJudge(settings.name, hire, settings.deadline, chunk_size=64 if limit == "auto" else max(16, limit))


def open_transport(name: TransportName, endpoint: Endpoint) -> Transport:
    """Imports the client only now: it costs more than a small batch."""
    if name == "httpx":
        from .httpx_transport import AsyncHttpxTransport

        return AsyncHttpxTransport(endpoint)
    from .aiohttp_transport import AiohttpTransport

    return AiohttpTransport(endpoint)


class AsyncioCrew(Crew):
    def __init__(self, settings: Settings, transport: TransportName) -> None:
        super().__init__(settings.clock)
        self._settings = settings
        self._engine = settings.new_engine()
        self._background = BackgroundLoop.acquire(settings.clock)
        self.loop = self._background.loop
        self._transport_name = transport
        self._transport: Transport | None = None
        self._workers: dict[asyncio.Task[None], Flight] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._closing = False

    # Called from any thread.

    def begin(self, call: Call) -> None:
        self.loop.call_soon_threadsafe(self._begin, call)

    def abandon(self, call: Call) -> None:
        with contextlib.suppress(RuntimeError):  # closed, and the loop with it: there is nothing to stop
            self.loop.call_soon_threadsafe(self._abandon, call)

    def stats(self) -> Stats:
        return self._engine.counters.snapshot()

    def close(self) -> None:
        self._background.run(self._close())
        self._background.release()
        self._settings.close_cache(self._engine.cache)

    # Called on the loop.

    def _begin(self, call: Call) -> None:
        self._engine.open(call)
        if self._closing:
            self._engine.close()
            return
        call.cancel_timer = self.loop.call_later(call.deadline - self.clock.now(), self._expire, call).cancel
        self._make_room(len(call.fresh))
        self._hire()

    def _make_room(self, wanted: int) -> None:
        """A late flight may go on for the cache's sake, but not in the place of a sample that somebody waits for."""
        missing = min(wanted, self._engine.limit.current) - (self._engine.limit.current - len(self._workers))
        if missing > 0:
            late = [task for task, flight in self._workers.items() if not flight.is_wanted]
            for task in late[:missing]:
                task.cancel()

    def _hire(self) -> None:
        """Put flights on the wire until the limit is reached or there are none."""
        if self._transport is None:
            self._transport = open_transport(self._transport_name, self._settings.endpoint)
        while len(self._workers) < self._engine.limit.current:
            flight = self._next_flight()
            if flight is None:
                return
            self._workers[self.loop.create_task(self._work(flight, self._transport))] = flight

    def _next_flight(self) -> Flight | None:
        """The next flight; or None, with the alarm set for when there may be one."""
        step = self._engine.take(self.clock.now())
        if isinstance(step, Flight):
            return step
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if step is None else self.loop.call_later(step, self._hire)
        return None

    async def _work(self, flight: Flight, transport: Transport) -> None:
        engine, workers, rubric, task = self._engine, self._workers, self._settings.rubric, asyncio.current_task()
        assert task is not None
        try:
            while True:
                try:
                    answer = grade(rubric, await transport.send(flight.request.body))
                except Failure as failure:
                    answer = Answer(failure=failure)
                except asyncio.CancelledError:
                    if self._closing:
                        raise
                    task.uncancel()
                    answer = Answer(failure=DeadlinePassed("no answer came, long after the deadline"))
                except Exception as error:
                    answer = Answer(failure=Failure(f"{type(error).__name__}: {error}"))
                engine.settle(flight, answer, self.clock.now())
                following = self._next_flight() if len(workers) <= engine.limit.current else None
                if following is None:
                    return
                workers[task] = flight = following
                if len(workers) < engine.limit.current:
                    self._hire()
        finally:
            del workers[task]

    def _expire(self, call: Call) -> None:
        self._engine.expire(call)
        self.loop.call_later(LATE_SECONDS, self._give_up_late_flights)
        self._hire()

    def _abandon(self, call: Call) -> None:
        if call.cancel_timer is not None:
            call.cancel_timer()
        self._engine.abandon(call)
        self.loop.call_later(LATE_SECONDS, self._give_up_late_flights)

    def _give_up_late_flights(self) -> None:
        now = self.clock.now()
        for task, flight in self._workers.items():
            if flight.deadline <= now:
                task.cancel()

    async def _close(self) -> None:
        self._closing = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._engine.close()
        workers = list(self._workers)
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._engine.counters.in_flight = 0
        if self._transport is not None:
            await self._transport.close()
            await asyncio.sleep(0)  # closed transports let go of their sockets in the next turn of the loop

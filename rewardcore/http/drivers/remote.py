"""`background="process"`: the loop driver lives in one spawned child, and this one passes calls and verdicts on.

Only packed samples, verdicts, figures and log lines cross the pipe, so that the parent's interpreter is hardly
disturbed. Every sample is packed by itself: one that cannot be read at the other end fails alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from operator import attrgetter
from types import NoneType
from typing import Any

from ...calls import Call, Driver, Run
from ...clock import SYSTEM_CLOCK
from ...failures import ConfigurationError, Failure, JudgeClosed, RewardcoreError, WorkerDied
from ...notices import log
from ...reply import Answer
from ...sample import Sample
from ...stats import Stats
from ...verdict import Verdict
from ..cache_file import BUSY_SECONDS
from ..processes import Child
from ..settings import Settings
from .loop import LoopDriver
from .loop_thread import LoopThread

#: How long verdicts wait for company: those of a stream, and those of a batch, whose caller asks only how far it is.
_GATHER_SECONDS, _PROGRESS_SECONDS = 0.002, 0.2
_ASKING_SECONDS = 5.0
#: How long a child may take to put its cache on disk, however busy that is.
_CLOSING_SECONDS = 2 * BUSY_SECONDS
#: Verdicts a message. One large message at the end would wait for the parent's GIL at every piece that a pipe can hold.
_PACK = 64
_fields = attrgetter(*Sample.__slots__)
_values = attrgetter(*Verdict.__slots__)


class RemoteDriver(Driver):
    """The parent's side: calls out, verdicts in. A child that dies fails its calls; the next call starts another."""

    def __init__(self, settings: Settings, open_driver: Callable[[], LoopDriver]) -> None:
        super().__init__(settings.clock)
        if not isinstance(settings.cache, (str, os.PathLike, bool, NoneType)):
            raise ConfigurationError("cache must be a path, True or None where another process judges, not an object")
        if settings.clock is not SYSTEM_CLOCK:
            raise ConfigurationError("clock must be the system's where another process judges")
        if settings.wrap_transport is not None:
            raise ConfigurationError("wrap_transport must be left out where another process judges")
        settings.close_cache(settings.open_cache())  # one that cannot be used is an error here, not in the child
        self._open_driver = open_driver
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._runs: weakref.WeakKeyDictionary[Run, int] = weakref.WeakKeyDictionary()
        self._before = Stats()  # of the children that are gone
        self._stats = Stats()
        self._asked: dict[int, asyncio.Future[None]] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._posting = threading.RLock()  # a stream that the garbage collector ends may post in the midst of a post
        self._closed = False
        self._thread = LoopThread.acquire(settings.clock)
        self._child = self._thread.run(self._hire())

    # Called from any thread.

    def begin(self, call: Call) -> None:
        if not self._post(self._begin, call):
            raise RewardcoreError("this judge is closed; open another")

    def abandon(self, call: Call) -> None:
        self._post(self._abandon, call)

    def stats(self) -> Stats:
        if not self._closed and not self._child.reason:
            self._thread.run(self._ask())
        return self._before + self._stats

    def close(self) -> None:
        with self._posting:
            self._closed = True
        self._thread.run(self._shut())
        self._thread.release()

    def _post(self, action: Callable[[Call], None], call: Call) -> bool:
        with self._posting:
            if not self._closed:
                self._thread.loop.call_soon_threadsafe(action, call)
            return not self._closed

    # Called on the loop.

    async def _hire(self) -> _Elsewhere:
        return _Elsewhere(self, _judge_here, self._open_driver, log.getEffectiveLevel())

    def _begin(self, call: Call) -> None:
        if self._child.reason:
            self._ending.append(self._thread.loop.create_task(self._child.end()))
            self._child = _Elsewhere(self, _judge_here, self._open_driver, log.getEffectiveLevel())
        call.number = next(self._numbers)
        self._calls[call.number] = call
        run = None if call.run is None else self._run_number(call.run)
        self._child.write(_pack_call(call, run))

    def _run_number(self, run: Run) -> int:
        """The child knows a stream's run by its number, and forgets it when the parent has."""
        if (number := self._runs.get(run)) is None:
            number = self._runs[run] = next(self._numbers)
            weakref.finalize(run, self._forget, number).atexit = False
        return number

    def _forget(self, number: int) -> None:
        with contextlib.suppress(RuntimeError):  # closed, and the loop with it
            self._thread.loop.call_soon_threadsafe(self._child.write, _pack("forget", number))

    def _abandon(self, call: Call) -> None:
        call.let_go()
        if self._calls.pop(call.number, None) is not None:
            self._child.write(_pack("abandon", call.number))

    async def _ask(self) -> None:
        """The figures of this moment; the last that are known, where no answer comes."""
        ticket = next(self._numbers)
        self._asked[ticket] = asyncio.get_running_loop().create_future()
        self._child.write(_pack("stats", ticket))
        await asyncio.wait([self._asked[ticket]], timeout=_ASKING_SECONDS)
        self._asked.pop(ticket, None)

    async def _shut(self) -> None:
        self._child.write(_pack("close"))
        await self._child.end(patience=0.0 if self._child.reason else _CLOSING_SECONDS)
        await asyncio.gather(*self._ending)

    def on_log(self, level: int, message: str) -> None:
        log.log(level, "%s", message)

    def on_stats(self, ticket: int, figures: Stats) -> None:
        self._stats.latencies.extend(figures.latencies)
        figures.latencies = self._stats.latencies
        self._stats = figures
        if (asked := self._asked.get(ticket)) is not None and not asked.done():
            asked.set_result(None)

    def on_verdicts(self, number: int, verdicts: list[tuple[Any, ...]], figures: Stats) -> None:
        self.on_stats(0, figures)
        if (call := self._calls.get(number)) is not None:
            for index, *values in verdicts:
                call.settle(index, Verdict(*values))
            if not call.waiting:
                del self._calls[number]

    def on_loss(self, reason: str) -> None:
        """The child is gone, as it should be after `close` and at no other time."""
        failure: Failure = WorkerDied(f"{reason}; the next call starts another")
        if self._closed:
            failure = JudgeClosed("the judge was closed before this sample was judged")
        self._before, self._stats = self._before + self._stats, Stats()
        self._before.in_flight = 0
        for call in list(self._calls.values()):
            for index in sorted(call.waiting):
                self._before.count_failure(failure.kind)
                call.settle(index, Answer(failure=failure).verdict())
        self._calls.clear()
        for asked in self._asked.values():
            asked.cancel()


class _Elsewhere(Child):
    def __init__(self, driver: RemoteDriver, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._driver = driver

    def received(self, message: bytes) -> None:
        kind, *content = pickle.loads(message)
        getattr(self._driver, f"on_{kind}")(*content)

    def lost(self, reason: str) -> None:
        self._driver.on_loss(reason)


def _pack(*message: object) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def _pack_call(call: Call, run: int | None) -> bytes:
    samples, call.fresh = call.fresh, deque()
    rows: list[tuple[int, bytes | str]] = []
    for index, sample in samples:
        try:
            rows.append((index, _pack(*_fields(sample))))
        except Exception as error:
            rows.append((index, f"{type(error).__name__}: {error}"))
    return _pack("begin", call.number, rows, call.deadline, run)


def _judge_here(connection: Connection, open_driver: Callable[[], LoopDriver], level: int) -> Callable[[], None]:
    """The child's side: the driver of the thread mode, until the pipe ends or "close" comes."""
    sending = threading.Lock()

    def send(*message: object, figures: bool = False) -> None:
        """With the `figures` of this moment, and the latencies that the parent has not had yet."""
        with sending, contextlib.suppress(OSError):
            if figures:
                message = (*message, driver.stats())
                for _ in message[-1].latencies:  # type: ignore[attr-defined]
                    driver.engine.stats.latencies.popleft()
            connection.send_bytes(_pack(*message))

    log.handlers, log.propagate = [_Forward(send)], False  # the script may have set up logging when it was imported
    log.setLevel(level)
    driver = open_driver()
    calls: dict[int, Call] = {}
    runs: dict[int, Run] = {}

    def begin(number: int, rows: list[tuple[int, bytes | str]], deadline: float, run: int | None) -> None:
        verdicts: list[tuple[Any, ...]] = []

        def flush() -> None:
            if verdicts:
                send("verdicts", number, verdicts.copy(), figures=True)
                verdicts.clear()

        def tell(index: int, verdict: Verdict) -> None:
            verdicts.append((index, *_values(verdict)))
            if len(verdicts) >= _PACK:
                flush()
            elif len(verdicts) == 1:
                driver.loop.call_later(_GATHER_SECONDS if run is not None else _PROGRESS_SECONDS, flush)

        def finished() -> None:
            calls.pop(number, None)
            flush()

        samples = []
        for index, packed in rows:
            try:
                samples.append((index, Sample(*pickle.loads(packed))))  # type: ignore[arg-type]
            except Exception as error:
                why = packed if isinstance(packed, str) else f"{type(error).__name__}: {error}"
                failure = Failure(f"extra must reach the process that judges, and be read there: {why}")
                driver.engine.stats.count_failure(failure.kind)
                verdicts.append((index, *_values(Answer(failure=failure).verdict())))
        flush()
        if samples:  # one clock for all processes
            shared = None if run is None else runs.setdefault(run, Run(1))
            calls[number] = call = Call(samples, deadline, tell, finished, shared)
            driver.begin(call)

    def work() -> None:
        try:
            while True:
                kind, *content = pickle.loads(connection.recv_bytes())
                if kind == "begin":
                    begin(*content)
                elif kind == "abandon" and (call := calls.pop(content[0], None)) is not None:
                    driver.abandon(call)
                elif kind == "forget" and (run := runs.pop(content[0], None)) is not None:
                    driver.release(run)
                elif kind == "stats":
                    send("stats", content[0], figures=True)
                elif kind == "close":
                    return
        finally:
            driver.close()
            send("stats", 0, figures=True)  # the last figures, for whoever asks later

    return work


class _Forward(logging.Handler):
    """The child's log lines are the parent's to show."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send("log", record.levelno, record.getMessage())

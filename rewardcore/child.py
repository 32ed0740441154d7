"""Child processes: how they are started and end, and the asyncio judge that lives in one (`background="process"`).

A child is spawned, never forked; it ignores Ctrl-C, which is its parent's to handle, and ends when its pipe does, so no
child outlives its parent. The asyncio child runs the very crew of the thread mode; only packed samples and verdicts
cross the pipe, a call at a time, so that the parent's interpreter is hardly disturbed.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import NoneType
from typing import Any

from .asyncio_judge import AsyncioCrew, TransportName
from .clock import SYSTEM_CLOCK
from .engine import Call
from .failures import ConfigurationError, Failure, JudgeClosed, RewardcoreError, WorkerDied
from .judge import Crew, Settings
from .sample import Sample
from .stats import Stats
from .verdict import Verdict

_GATHER_SECONDS = 0.002
_PATIENCE_SECONDS = 5.0


def portable(settings: Settings) -> Settings:
    """The settings as a child may have them, or an error that names what cannot travel."""
    if not isinstance(settings.cache, (str, os.PathLike, bool, NoneType)):
        raise ConfigurationError("cache must be a path, True or None where another process judges, not an object")
    if settings.clock is not SYSTEM_CLOCK:
        raise ConfigurationError("clock must be the system's where another process judges")
    check_picklable("endpoint", settings.endpoint)
    check_picklable("rubric", settings.rubric)
    return settings


def check_picklable(name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except Exception as error:
        raise ConfigurationError(
            f"{name} must be picklable to reach another process: define it at a module's top level ({error})"
        ) from error


def spawn(main: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Start `main(connection, *arguments)` in a child."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(main, there, arguments), name="rewardcore", daemon=True)
    # A child inherits what is blocked: so no Ctrl-C reaches it before it can say that it ignores them.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    except BaseException:
        here.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        there.close()
    return process, here


def end(process: BaseProcess, connection: Connection) -> None:
    """Stop a child surely: SIGTERM, then SIGKILL."""
    with contextlib.suppress(OSError):
        connection.close()
    process.terminate()
    process.join(_PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def _run(main: Callable[..., None], connection: Connection, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, OSError):  # the parent is gone, or has had enough
        main(connection, *arguments)


class ChildCrew(Crew):
    """The parent's side: calls out, verdicts in. A child that dies fails its calls; the next call starts another."""

    def __init__(self, settings: Settings, transport: TransportName) -> None:
        super().__init__(settings.clock)
        self._arguments = (portable(settings), transport)
        settings.close_cache(settings.open_cache())  # one that cannot be used is an error here, not in the child
        self._lock = threading.Lock()  # guards the calls and who judges them
        self._asking = threading.Lock()
        self._numbers = itertools.count()
        self._calls: dict[int, Call] = {}
        self._answers: queue.SimpleQueue[Stats] = queue.SimpleQueue()
        self._last_stats = Stats()
        self._closed = False
        self._start()

    def begin(self, call: Call) -> None:
        samples = [(index, s.prompt, s.response, s.ground_truth, s.data_source, s.extra) for index, s in call.fresh]
        number = next(self._numbers)
        packed = pickle.dumps(("begin", number, samples, call.deadline, call.streamed), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if self._closed:
                raise RewardcoreError("this judge is closed; open another")
            if self._gone:
                self._restart()
            self._calls[number] = call
            self._outbox.put(packed)

    def abandon(self, call: Call) -> None:
        with self._lock:
            call.waiting.clear()
            for number in [number for number, known in self._calls.items() if known is call]:
                del self._calls[number]
                self._outbox.put(pickle.dumps(("abandon", number)))

    def stats(self) -> Stats:
        with self._asking:
            if not self._closed and not self._gone:
                self._outbox.put(pickle.dumps(("stats",)))
                with contextlib.suppress(queue.Empty):
                    self._last_stats = self._answers.get(timeout=_PATIENCE_SECONDS)
            return self._last_stats

    def close(self) -> None:
        self.stats()  # the last figures, for whoever asks later
        with self._lock:
            self._closed = True
            self._outbox.put(pickle.dumps(("close",)))
            self._outbox.put(None)
        self._process.join(_PATIENCE_SECONDS)  # it flushes its cache
        self._stop()

    def _start(self) -> None:
        self._process, self._connection = spawn(_judge_in_child, *self._arguments)
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._gone = False
        self._threads = [
            threading.Thread(target=target, args=(self._connection, self._outbox), name=name, daemon=True)
            for target, name in ((self._send, "rewardcore-send"), (self._receive, "rewardcore-receive"))
        ]
        for thread in self._threads:
            thread.start()

    def _stop(self) -> None:
        self._outbox.put(None)
        end(self._process, self._connection)
        for thread in self._threads:
            thread.join()

    def _restart(self) -> None:
        self._stop()
        self._start()

    def _send(self, connection: Connection, outbox: queue.SimpleQueue[bytes | None]) -> None:
        while (message := outbox.get()) is not None:
            try:
                connection.send_bytes(message)
            except OSError:
                return

    def _receive(self, connection: Connection, outbox: queue.SimpleQueue[bytes | None]) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, *content = pickle.loads(connection.recv_bytes())
                if kind == "stats":
                    self._answers.put(content[0])
                else:
                    self._deliver(*content)
        self._fail_calls()

    def _deliver(self, number: int, verdicts: list[tuple[Any, ...]]) -> None:
        with self._lock:
            call = self._calls.get(number)
            if call is None:
                return
            for index, *values in verdicts:
                call.settle(index, Verdict(*values))
            if not call.waiting:
                del self._calls[number]

    def _fail_calls(self) -> None:
        """The child is gone, as it should be after `close` and at no other time."""
        failure: Failure = WorkerDied("the process that judged this sample died; the next call starts another")
        with self._lock:
            self._gone = True
            if self._closed:
                failure = JudgeClosed("the judge was closed before this sample was judged")
            verdict = Verdict(failure.status, error=f"{failure.kind}: {failure}")
            for call in self._calls.values():
                for index in sorted(call.waiting):
                    call.settle(index, verdict)
            self._calls.clear()
        self._answers.put(self._last_stats)  # for whoever was asking


def _judge_in_child(connection: Connection, settings: Settings, transport: TransportName) -> None:
    """The child's side, until the pipe ends or "close" comes."""
    crew = AsyncioCrew(settings, transport)
    calls: dict[int, Call] = {}
    sending = threading.Lock()

    def send(*message: object) -> None:
        packed = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with sending, contextlib.suppress(OSError):
            connection.send_bytes(packed)

    def begin(number: int, rows: list[tuple[Any, ...]], deadline: float, streamed: bool) -> None:
        verdicts: list[tuple[Any, ...]] = []

        def flush() -> None:
            send("verdicts", number, verdicts.copy())
            verdicts.clear()

        def tell(index: int, verdict: Verdict) -> None:
            verdicts.append((index, *_values(verdict)))
            if streamed and len(verdicts) == 1:
                crew.loop.call_later(_GATHER_SECONDS, flush)

        def finished() -> None:
            calls.pop(number, None)
            if not streamed:
                flush()

        samples = [(index, Sample(*fields)) for index, *fields in rows]
        calls[number] = call = Call(samples, deadline, tell, finished)  # one clock for all processes
        crew.begin(call)

    try:
        while True:
            kind, *content = pickle.loads(connection.recv_bytes())
            if kind == "begin":
                begin(*content)
            elif kind == "abandon" and (call := calls.pop(content[0], None)) is not None:
                crew.abandon(call)
            elif kind == "stats":
                send("stats", crew.stats())
            elif kind == "close":
                return
    finally:
        crew.close()


def _values(verdict: Verdict) -> tuple[Any, ...]:
    return (
        verdict.status,
        verdict.score,
        verdict.text,
        verdict.error,
        verdict.cached,
        verdict.attempts,
        verdict.latency,
        verdict.usage,
    )

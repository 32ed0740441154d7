"""The asyncio mode with `background="process"`: its loop and connections live in one spawned child.

The child runs the very crew of the thread mode; only packed samples, verdicts and log lines cross the pipe, a call at a
time, so that the parent's interpreter is hardly disturbed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import queue
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from .asyncio_judge import AsyncioCrew, TransportName
from .child import PATIENCE_SECONDS, end, portable, spawn
from .crew import Crew
from .engine import Call, Stream
from .failures import Failure, JudgeClosed, RewardcoreError, WorkerDied
from .reply import Answer
from .sample import Sample
from .settings import Settings
from .stats import Stats
from .verdict import Verdict

log = logging.getLogger("rewardcore")

_GATHER_SECONDS = 0.002
#: Verdicts a message. One large message at the end would wait for the parent's GIL at every piece that a pipe can hold.
_PACK = 64


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
        self._streams: weakref.WeakKeyDictionary[Stream, int] = weakref.WeakKeyDictionary()
        self._answered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._last_stats = Stats()
        self._closed = False
        self._start()

    def begin(self, call: Call) -> None:
        rows = [(index, s.prompt, s.response, s.ground_truth, s.data_source, s.extra) for index, s in call.fresh]
        number, stream = next(self._numbers), self._stream_number(call)
        try:
            packed = _pack("begin", number, rows, call.deadline, stream)
        except Exception:
            rows = [row for row in rows if _travels(call, row)]
            packed = _pack("begin", number, rows, call.deadline, stream)
            if not rows:
                return
        with self._lock:
            if self._closed:
                raise RewardcoreError("this judge is closed; open another")
            if self._gone:
                self._restart()
            self._calls[number] = call
            self._outbox.put(packed)

    def _stream_number(self, call: Call) -> int | None:
        """The child knows a stream by its number, and forgets it when the parent has."""
        if call.stream is None:
            return None
        if (number := self._streams.get(call.stream)) is None:
            number = self._streams[call.stream] = next(self._numbers)
            weakref.finalize(call.stream, lambda: self._outbox.put(_pack("forget", number)))
        return number

    def abandon(self, call: Call) -> None:
        with self._lock:
            call.waiting.clear()
            for number in [number for number, known in self._calls.items() if known is call]:
                del self._calls[number]
                self._outbox.put(_pack("abandon", number))

    def stats(self) -> Stats:
        with self._asking:
            if not self._closed and not self._gone:
                self._outbox.put(_pack("stats"))
                with contextlib.suppress(queue.Empty):
                    self._answered.get(timeout=PATIENCE_SECONDS)
            return self._last_stats

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._outbox.put(_pack("close"))
            self._outbox.put(None)
        self._process.join(PATIENCE_SECONDS)  # it flushes its cache
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
        end(self._process)
        for thread in self._threads:
            thread.join()
        self._connection.close()

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
                    self._last_stats = content[0]
                    self._answered.put(None)
                elif kind == "log":
                    log.log(*content)
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
            verdict = Answer(failure=failure).verdict()
            for call in self._calls.values():
                for index in sorted(call.waiting):
                    call.settle(index, verdict)
            self._calls.clear()
        self._answered.put(None)  # for whoever was asking


def _pack(*message: object) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def _travels(call: Call, row: tuple[Any, ...]) -> bool:
    """Whether the sample can cross the pipe; if not, it has its verdict now."""
    try:
        _pack(row)
    except Exception as error:
        failure = Failure(f"extra must be picklable to reach the process that judges: {error}")
        call.settle(row[0], Answer(failure=failure).verdict())
        return False
    return True


def _judge_in_child(connection: Connection, settings: Settings, transport: TransportName) -> None:
    """The child's side, until the pipe ends or "close" comes."""
    sending = threading.Lock()

    def send(*message: object) -> None:
        packed = _pack(*message)
        with sending, contextlib.suppress(OSError):
            connection.send_bytes(packed)

    log.addHandler(_Forward(send))
    log.setLevel(logging.DEBUG)  # what is shown is for the parent to say
    crew = AsyncioCrew(settings, transport)
    calls: dict[int, Call] = {}
    streams: dict[int, Stream] = {}

    def begin(number: int, rows: list[tuple[Any, ...]], deadline: float, stream: int | None) -> None:
        verdicts: list[tuple[Any, ...]] = []

        def flush() -> None:
            send("verdicts", number, verdicts.copy())
            verdicts.clear()

        def tell(index: int, verdict: Verdict) -> None:
            verdicts.append((index, *_values(verdict)))
            if stream is None and len(verdicts) >= _PACK:
                flush()
            elif stream is not None and len(verdicts) == 1:
                crew.loop.call_later(_GATHER_SECONDS, flush)

        def finished() -> None:
            calls.pop(number, None)
            if stream is None and verdicts:
                flush()

        samples = [(index, Sample(*fields)) for index, *fields in rows]
        known = None if stream is None else streams.setdefault(stream, Stream())
        calls[number] = call = Call(samples, deadline, tell, finished, known)  # one clock for all processes
        crew.begin(call)

    try:
        while True:
            kind, *content = pickle.loads(connection.recv_bytes())
            if kind == "begin":
                begin(*content)
            elif kind == "abandon" and (call := calls.pop(content[0], None)) is not None:
                crew.abandon(call)
            elif kind == "forget":
                streams.pop(content[0], None)
            elif kind == "stats":
                send("stats", crew.stats())
            elif kind == "close":
                return
    finally:
        crew.close()
        send("stats", crew.stats())  # the last figures, for whoever asks later


class _Forward(logging.Handler):
    """The child's log lines are the parent's to show."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send("log", record.levelno, "%s", record.getMessage())


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

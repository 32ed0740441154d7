"""`background="process"`, the child's side: the driver of the thread mode, fed from a pipe until that ends.

What it says is one packed tuple a message, whose first word is its kind: what `RemoteDriver` has an `on_` method for.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

from ...calls import Call, Run
from ...failures import Failure
from ...notices import log
from ...reply import Answer
from ...sample import Sample
from ...verdict import Verdict
from ..processes import BEAT_SECONDS, Child, Listener, OpenChild, SpawnedChild
from .loop import LoopDriver

#: How long verdicts wait for company: those of a stream, and those of a batch, whose caller asks only how far it is.
_GATHER_SECONDS, _PROGRESS_SECONDS = 0.002, 0.2
#: Verdicts a message. One large message at the end would wait for the parent's GIL at every piece that a pipe can hold.
_PACK = 64
_values = attrgetter(*Verdict.__slots__)


def elsewhere(open_driver: Callable[[], LoopDriver]) -> OpenChild:
    """A child that judges with the driver that is opened there."""

    def open_child(listener: Listener) -> Child:
        return SpawnedChild(listener, judge_here, open_driver, log.getEffectiveLevel())

    return open_child


def pack(*message: object) -> bytes:
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def judge_here(connection: Connection, open_driver: Callable[[], LoopDriver], level: int) -> Callable[[], None]:
    """What the child runs, until the pipe ends or "close" comes."""
    sending = threading.Lock()

    def send(*message: object, figures: bool = False) -> None:
        """With the `figures` of this moment, and the latencies that the parent has not had yet."""
        with sending, contextlib.suppress(OSError):
            if figures:
                message = (*message, driver.stats())
                for _ in message[-1].latencies:  # type: ignore[attr-defined]
                    driver.engine.stats.latencies.popleft()
            connection.send_bytes(pack(*message))

    log.handlers, log.propagate = [_Forward(send)], False  # the script may have set up logging when it was imported
    log.setLevel(level)
    driver = open_driver()
    calls: dict[int, Call] = {}
    runs: dict[int, Run] = {}  # of streams, until they are over

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
            shared = None if run is None else runs.setdefault(run, Run())
            calls[number] = call = Call(samples, deadline, tell, finished, shared)
            driver.begin(call)

    closed = threading.Event()

    def beat() -> None:
        """A busy disk may take its time, if only the parent knows that somebody is at it."""
        while not closed.wait(BEAT_SECONDS):
            send("alive")

    def work() -> None:
        try:
            while True:
                kind, *content = pickle.loads(connection.recv_bytes())
                if kind == "begin":
                    begin(*content)
                elif kind == "abandon" and (call := calls.pop(content[0], None)) is not None:
                    driver.abandon(call)
                elif kind == "release":
                    runs.pop(content[0], None)
                elif kind == "stats":
                    send("stats", content[0], figures=True)
                elif kind == "close":
                    return
        finally:
            threading.Thread(target=beat, name="rewardcore-beat", daemon=True).start()
            try:
                driver.close()
            finally:
                closed.set()
            send("stats", 0, figures=True)  # the last figures, for whoever asks later

    return work


class _Forward(logging.Handler):
    """The child's log lines are the parent's to show."""

    def __init__(self, send: Callable[..., None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send("log", record.levelno, record.getMessage())

"""The driver in the caller's thread: one request at a time, and only while somebody waits for a result.

It is the baseline that every speed-up is measured against, and the simplest way to judge a few samples. The caller
takes, gives up and keeps the deadlines; only the blocking send is in a thread of its own, so that nothing that
an endpoint does can hold the caller up. A request that outlives its caller may still feed the cache.
"""

from __future__ import annotations

import math
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from ...calls import Batch, Call, Driver, never_waits
from ...clock import Clock, Event
from ...failures import Failure, RewardcoreError
from ...reply import Answer, Reply
from ...rubrics.rubric import grade
from ...stats import Stats
from ..cache import Cache
from ..engine import Aside, Engine, Flight, GiveUp

#: How long a rubric that waits for another judge holds up `close`.
_PATIENCE_SECONDS = 2.0


class BlockingTransport(Protocol):
    """Attempts are numbered upwards; `abort`, from another thread, ends one at once, begun or not."""

    def send(self, body: bytes, number: int) -> Reply: ...

    def abort(self, number: int) -> None: ...

    def close(self) -> None: ...


class CallerDriver(Driver):
    def __init__(
        self,
        clock: Clock,
        engine: Engine,
        transport: BlockingTransport,
        close_cache: Callable[[Cache | None], None],
        deadline: float,
    ) -> None:
        super().__init__(clock)
        self._engine = engine
        self._transport = transport
        self._close_cache = close_cache
        self._deadline = deadline
        self._lock = threading.RLock()
        self._unasked: weakref.WeakSet[Call] = weakref.WeakSet()
        self._waiters: dict[Event, None] = {}
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._sender: threading.Thread | None = None
        self._closed = False

    def begin(self, call: Call) -> None:
        with self._lock:
            if self._closed:
                raise RewardcoreError("this judge is closed; open another")
            self._unasked.add(call)  # its time runs from when somebody waits for it

    def wait(self, batch: Batch, timeout: float | None) -> None:
        give_up = math.inf if timeout is None else self.clock.now() + timeout
        self._open(batch.call)
        changed = self.clock.event()
        self._waiters[changed] = None
        try:
            while not batch.future.done():
                changed.clear()
                pause = self._pump()
                left = give_up - self.clock.now()
                if batch.future.done():
                    return
                if left <= 0.0:
                    raise TimeoutError
                pause = min(pause, left)
                changed.wait(None if pause == math.inf else min(pause, threading.TIMEOUT_MAX))
        finally:
            del self._waiters[changed]

    def _open(self, call: Call) -> None:
        with self._lock:
            if call in self._unasked:
                self._unasked.discard(call)
                call.deadline = self.clock.now() + self._deadline
                self._engine.open(call)

    def _pump(self) -> float:
        """Do what the engine says; the seconds until it has to be asked again."""
        with self._deciding():
            while True:
                step = self._engine.take(self.clock.now())
                if isinstance(step, Flight):
                    self._do(partial(self._attempt, step))
                elif isinstance(step, GiveUp):
                    self._transport.abort(step.flight.number)
                elif isinstance(step, Aside):
                    self._do(partial(self._go_aside, step))
                elif step or self._closed:
                    return step

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Over the engine: nobody else decides meanwhile, and a rubric that would wait here is read aside."""
        with self._lock:
            never_waits.here, before = True, getattr(never_waits, "here", False)
            try:
                yield
            finally:
                never_waits.here = before

    def _do(self, work: Callable[[], object]) -> None:
        """In the sending thread, in turn."""
        if self._sender is None:
            self._sender = threading.Thread(target=self._work_off, name="rewardcore-sync", daemon=True)
            self._sender.start()
        self._work.put(self.clock.carry(work))

    def _work_off(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _attempt(self, flight: Flight) -> None:
        try:
            answer = grade(self._engine.rubric, self._transport.send(flight.request.body, flight.number))
        except Failure as failure:
            answer = Answer(failure=failure)
        except BaseException as error:
            answer = Answer(failure=Failure(f"{type(error).__name__}: {error}"))
        with self._deciding():
            self._engine.settle(flight, answer, self.clock.now())
            self._wake()

    def _go_aside(self, aside: Aside) -> None:
        result = aside.work()
        with self._deciding():
            aside.then(result)
            self._wake()

    def _wake(self) -> None:
        for waiter in list(self._waiters):
            waiter.set()

    def abandon(self, call: Call) -> None:
        with self._lock:
            self._unasked.discard(call)
            self._engine.abandon(call, self.clock.now())
            self._wake()

    def close(self) -> None:
        with self._lock:
            for call in list(self._unasked):
                self._open(call)
            self._closed = True
            self._engine.close(self.clock.now())
            self._transport.abort(self._engine.limit.sent)
            self._wake()
        if self._sender is not None:
            self._work.put(None)
            self._sender.join(_PATIENCE_SECONDS)
        self._transport.close()
        self._close_cache(self._engine.cache)

    def stats(self) -> Stats:
        return self._engine.stats.snapshot()

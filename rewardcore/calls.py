"""Calls: batches on their way, the drivers that take them on, and what the caller holds meanwhile.

A driver takes calls on and tells their verdicts. It never outlives its process: after a fork a judge hires another.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from .clock import Clock, Event
from .failures import AsksJudge, ConfigurationError, Failure, RewardcoreError
from .progress import Progress
from .sample import Sample
from .stats import Stats
from .verdict import Verdict


class Run:
    """What the calls of one stream share: whether one of them has begun, and what ended them all, if anything did."""

    __slots__ = ("ended_by", "has_begun", "number")

    def __init__(self) -> None:
        self.has_begun = False
        self.ended_by: Failure | None = None
        self.number = 0  # the driver's own


class Call:
    """One batch on its way: its samples, its deadline, and who is told of each verdict (`index, verdict`).

    `waiting` holds the places without a verdict, each with the flight that its sample sits on. `finished` is told once,
    when the last verdict is in. The calls of a stream share its run. `ended_by` is what opened the breaker while it was
    open: what was not sent by then is not sent any more.
    """

    __slots__ = ("__weakref__", "_finished", "_tell", "deadline", "ended_by", "fresh", "number", "run", "waiting")

    def __init__(
        self,
        samples: Iterable[tuple[int, Sample]],
        deadline: float,
        tell: Callable[[int, Verdict], None],
        finished: Callable[[], None],
        run: Run | None = None,
    ) -> None:
        self.run = run
        self.ended_by: Failure | None = None
        self.number = 0  # the driver's own
        self.fresh = deque(samples)
        self.deadline = deadline
        self.waiting: dict[int, Any] = dict.fromkeys(index for index, _ in self.fresh)
        self._tell = tell
        self._finished = finished

    def settle(self, index: int, verdict: Verdict) -> None:
        """The first verdict for a sample counts; the last sample's ends the call."""
        if index in self.waiting:
            del self.waiting[index]
            try:
                self._tell(index, verdict)
            finally:
                if not self.waiting:
                    self._finished()
                    self.let_go()

    def let_go(self) -> None:
        """Nobody waits any more, and nobody will be told: whoever would have been need not be kept for it."""
        self.waiting = {}
        self._tell = self._finished = nobody


def nobody(*_: object) -> None:
    """Told of what nobody waits for."""


class Driver(ABC):
    """How one mode drives requests, in one process."""

    def __init__(self, clock: Clock) -> None:
        self.pid = os.getpid()
        self.clock = clock
        self._closer: dict[str, tuple[int, Event]] = {}  # who closes it: no lock, which a signal could find held

    @abstractmethod
    def begin(self, call: Call) -> None:
        """Take the call on and return at once."""

    def wanted(self, call: Call) -> None:
        """Somebody waits for it from now on. For whoever begins only then; others have begun."""
        return

    @abstractmethod
    def abandon(self, call: Call) -> None:
        """Nobody waits for this call any more, and nobody is told; what is in the air may still reach the cache."""

    def release(self, run: Run) -> None:
        """Its stream is over. For whoever keeps something of it in another process; others need not know."""
        return

    @abstractmethod
    def close(self) -> None:
        """Use `end`, which closes it once."""

    def end(self) -> None:
        """Close it, if nobody has; whoever asks for it meanwhile returns when it is closed."""
        here, has_ended = mine = threading.get_ident(), self.clock.event()
        first = self._closer.setdefault("by", mine)
        if first is not mine:
            if first[0] != here:  # else a signal's handler has come in the midst of it
                first[1].wait()
            return
        try:
            self.close()
        finally:
            open_drivers.discard(self)
            has_ended.set()

    def let_go(self) -> None:
        """Nobody holds its judge any more, and the garbage collector, which says so, waits for nothing."""
        if not self._closer and self.pid == os.getpid():
            self._end_beside()

    def _end_beside(self) -> None:
        with contextlib.suppress(RuntimeError):  # the interpreter exits, and ends it
            threading.Thread(target=self.end, name="rewardcore-end", daemon=True).start()

    @abstractmethod
    def stats(self) -> Stats: ...


#: Those that have not ended, also of judges that are gone. After a fork these are the parent's, and their sockets in
#: use: kept here, nothing finalises them.
open_drivers: set[Driver] = set()


class Batch:
    """The verdicts of one list of samples, in input order, and who is told when all are in, or nobody wants them.

    Not a future of the standard library: a trainer may have thousands of batches of one open, and a future is eleven
    objects that the garbage collector looks at again and again. There is no lock, which a fork or a signal could find
    held: whoever pops from `_open` ends the batch, and whoever pops from `_told` tells.
    """

    __slots__ = ("_done", "_ended", "_open", "_told", "_verdicts", "call", "is_cancelled", "is_done")

    def __init__(
        self,
        samples: list[tuple[int, Sample]],
        deadline: float,
        ended: Callable[[list[Verdict]], None] = nobody,
    ) -> None:
        self._ended = ended
        self._verdicts: list[Verdict | None] = [None] * len(samples)
        self._open = [self._verdicts]
        self._told: list[Callable[[], object]] = []
        self._done: Event | None = None
        self.is_done = self.is_cancelled = False
        self.call = Call(samples, deadline, self._verdicts.__setitem__, self._finish)
        if not samples:
            self._finish()

    def progress(self) -> Progress:
        verdicts = [verdict for verdict in self._verdicts if verdict is not None]
        failed = sum(verdict.status != "ok" for verdict in verdicts)
        return Progress(len(verdicts), len(self._verdicts), failed)

    def result(self) -> list[Verdict]:
        """Of a batch that is done."""
        if self.is_cancelled:
            raise concurrent.futures.CancelledError
        return self._verdicts  # type: ignore[return-value]  # every place is filled

    def cancel(self) -> bool:
        """False where it is done already."""
        return self._end(is_cancelled=True)

    def when_done(self, tell: Callable[[], object]) -> None:
        """At once if it is; else in whatever thread ends it."""
        self._told.append(tell)
        if self.is_done:
            self._tell()

    def done_event(self, clock: Clock) -> Event:
        """One for all who wait, however often they ask."""
        if self._done is None:
            self._done = event = clock.event()
            self.when_done(event.set)
        return self._done

    def _finish(self) -> None:
        """The caller has its verdicts before anybody else hears of them."""
        self._end(is_cancelled=False)
        self._ended(self._verdicts)  # type: ignore[arg-type]  # every place is filled by now

    def _end(self, *, is_cancelled: bool) -> bool:
        try:
            self._open.pop()
        except IndexError:
            return False
        self.is_cancelled = is_cancelled
        self.is_done = True
        self._tell()
        return True

    def _tell(self) -> None:
        while self._told:
            try:
                tell = self._told.pop()
            except IndexError:  # somebody else told the last one
                return
            tell()


class _Thread(threading.local):
    is_at_work = False


_here = _Thread()


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """A judge waits for what this thread does within, which must not wait for a judge in its turn."""
    before, _here.is_at_work = _here.is_at_work, True
    try:
        yield
    finally:
        _here.is_at_work = before


def check_may_wait() -> None:
    if _here.is_at_work:
        raise AsksJudge(
            "a judge was asked by what a judge is waiting for; judge in two steps instead: put the first judge's"
            " verdicts into `extra` of the samples that the second one judges"
        )


class Pending:
    """A batch that is being judged, to be awaited in a running loop, or asked for its `result` anywhere else.

    `waited` is how long `result` has blocked its callers so far.
    """

    def __init__(self, batch: Batch, driver: Driver, blocked: Callable[[float], None]) -> None:
        self.waited = 0.0
        self._batch = batch
        self._driver = driver
        self._blocked = blocked

    def done(self) -> bool:
        return self._batch.is_done

    @property
    def progress(self) -> Progress:
        """(done, total, failed), at this moment."""
        return self._batch.progress()

    def cancel(self) -> None:
        """Stop asking for this batch; replies already in the air still reach the cache while the judge is open."""
        if self._batch.cancel():
            self._driver.abandon(self._batch.call)

    def result(self, timeout: float | None = None) -> list[Verdict]:
        """The verdicts in input order; TimeoutError where they take longer, and the batch goes on: ask again."""
        if not self.wait(timeout):
            raise TimeoutError(f"the batch was not judged within {timeout} s; it goes on")
        return self._batch.result()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is done, for so long at most; whether it is.

        What is raised meanwhile, by Ctrl-C or a signal's handler, passes as it is, a TimeoutError too, and cancels it.
        """
        self._check_process()
        if timeout is not None and not (isinstance(timeout, int | float) and timeout == timeout):
            raise ConfigurationError(f"timeout must be seconds, or None to wait for ever, not {timeout!r}")
        if self.done():
            return True
        if timeout is not None and timeout > threading.TIMEOUT_MAX:  # no thread can wait for so long
            timeout = None
        clock = self._driver.clock
        started = clock.now()
        try:
            check_may_wait()
            self._driver.wanted(self._batch.call)
            return self._batch.done_event(clock).wait(timeout)
        except BaseException:
            self.cancel()
            raise
        finally:
            seconds = clock.now() - started
            self.waited += seconds
            self._blocked(seconds)

    def __await__(self) -> Generator[Any, None, list[Verdict]]:
        """`result` for a running loop, which goes on meanwhile; cancelling whoever awaits it cancels the batch."""
        return self._until_done().__await__()

    async def _until_done(self) -> list[Verdict]:
        self._check_process()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not done.done():
                done.set_result(None)

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(wake)

        self._batch.when_done(tell)
        try:
            check_may_wait()
            self._driver.wanted(self._batch.call)
            await done
            return self._batch.result()
        except BaseException:
            self.cancel()
            raise

    def _check_process(self) -> None:
        if self._driver.pid != os.getpid():
            raise RewardcoreError(
                f"this batch was submitted in process {self._driver.pid}; submit it in this one again"
            )

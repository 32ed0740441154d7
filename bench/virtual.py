"""Virtual time: the real sync and asyncio code at full-size latency, exact, in a moment of real time.

Time stands still while anybody is busy; otherwise it jumps to the next instant that somebody waits for. It is
counted in whole nanoseconds, so that 18 waits of 2.0 s, or ten of 0.7 s, add up without noise. Not for real
sockets, child processes, forks, or a timer that sets itself again for ever: an idle loop would race on.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

NANOSECONDS = 1_000_000_000
Result = TypeVar("Result")


class Party:
    """Somebody for whom time stands still while busy: from `_begin` to `_end`, except while it waits."""

    counts = False


class VirtualClock:
    """Starts at 0.0; `now` and `sleep` stand in for time.monotonic and time.sleep, in any thread.

    Busy are: a loop of this clock while it runs callbacks, what it gave to run_in_executor until the result
    is back on the loop, and a thread inside `hold`. What these do is exact, and so is one plain thread alone.
    A plain thread beside a loop is not, since the clock cannot see it run. It may safely submit to an idle
    loop; but when it wakes from a sleep, or with a result, a loop with a timer left may have jumped to that.
    """

    def __init__(self) -> None:
        self._nanoseconds = 0
        # Reentrant, because a signal handler may wake a loop while its own thread is in here.
        self._lock = threading.RLock()
        self._busy: set[Party] = set()
        self._waiting: dict[Party, tuple[int, Callable[[], object]]] = {}  # until when, and how to wake it
        self._thread = threading.local()

    def now(self) -> float:
        return self._nanoseconds / NANOSECONDS

    def sleep(self, seconds: float) -> None:
        """Jumps there at once, unless somebody is busy or has something to do before."""
        party: Party = getattr(self._thread, "party", None) or Party()
        woken = threading.Event()
        with self._lock:
            if self._wait(party, seconds, woken.set):
                return
        woken.wait()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """This thread is busy: time passes only in its `sleep`. Waiting for a loop in here never ends."""
        if getattr(self._thread, "party", None) is not None:
            yield
            return
        party = Party()
        self._begin(party)
        try:
            with self._in_this_thread(party):
                yield
        finally:
            self._end(party)

    def event(self) -> VirtualEvent:
        return VirtualEvent(self)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return VirtualLoop(self)

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """asyncio.run on a loop of this clock."""
        loop = self.new_event_loop()
        try:
            return loop.run_until_complete(main)
        finally:
            if left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    @contextmanager
    def _in_this_thread(self, party: Party) -> Iterator[None]:
        """When this thread sleeps, it is this party that waits."""
        before = getattr(self._thread, "party", None)
        self._thread.party = party
        try:
            yield
        finally:
            self._thread.party = before

    def _begin(self, party: Party) -> None:
        with self._lock:
            party.counts = True
            self._busy.add(party)

    def _end(self, party: Party) -> None:
        with self._lock:
            party.counts = False
            self._busy.discard(party)
            self._advance(party)

    def _wait(self, party: Party, seconds: float | None, wake: Callable[[], object]) -> bool:
        """With the lock held: not busy for so long (None: until woken). True when that time has come."""
        self._busy.discard(party)
        if seconds is not None:
            # At least one: whoever waits for less would be asked again at the same instant, for ever.
            self._waiting[party] = self._nanoseconds + (round(seconds * NANOSECONDS) or seconds > 0), wake
        self._advance(party)
        return seconds is not None and party not in self._waiting

    def _resume(self, party: Party) -> None:
        """With the lock held: busy again, before its time."""
        self._waiting.pop(party, None)
        if party.counts:
            self._busy.add(party)

    def _advance(self, caller: Party) -> None:
        """With the lock held: while nobody is busy, jump on and resume whoever waits for that instant."""
        while self._waiting and not self._busy:
            self._nanoseconds = max(self._nanoseconds, min(due for due, _ in self._waiting.values()))
            for party, (due, wake) in list(self._waiting.items()):
                if due <= self._nanoseconds:
                    self._resume(party)
                    if party is not caller:
                        wake()


class VirtualEvent:
    """threading.Event on a VirtualClock: whoever waits is not busy, and is so again from the moment it is set."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._is_set = False
        self._waiting: dict[Party, threading.Event] = {}

    def set(self) -> None:
        with self._clock._lock:
            self._is_set = True
            for party, woken in self._waiting.items():
                self._clock._resume(party)
                woken.set()
            self._waiting.clear()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        clock, woken = self._clock, threading.Event()
        with clock._lock:
            if self._is_set:
                return True
            # A plain thread counts from when it is woken until it waits again or says that it holds the clock.
            party: Party = getattr(clock._thread, "party", None) or Party()
            self._waiting[party] = woken
            if clock._wait(party, timeout, woken.set):
                self._waiting.pop(party, None)
                return self._is_set
        woken.wait()
        with clock._lock:
            self._waiting.pop(party, None)
            return self._is_set


class VirtualSelector(selectors.DefaultSelector):
    """Lets time jump where a loop would wait; it really blocks only until another party wakes it."""

    def __init__(self, clock: VirtualClock, party: Party) -> None:
        super().__init__()
        self.clock = clock
        self.party = party
        self.is_blocked = False
        self.wake: Callable[[], object] = lambda: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Polling and going idle are one step under the lock, and so are queueing a callback and waking
        # (VirtualLoop.call_soon_threadsafe): no callback can slip in between and be jumped over.
        with self.clock._lock:
            events = super().select(0)
            if events or (timeout is not None and timeout <= 0):
                return events
            if self.clock._wait(self.party, timeout, self.wake):
                return []
            self.is_blocked = True
        try:
            return super().select(None)
        finally:
            with self.clock._lock:
                self.is_blocked = False
                self.clock._resume(self.party)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a VirtualClock; several may share one, each in its own thread."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._party = Party()
        self._virtual_selector = VirtualSelector(clock, self._party)
        self._virtual_selector.wake = lambda: self.call_soon_threadsafe(lambda: None)
        super().__init__(self._virtual_selector)
        self._clock_resolution = 1 / NANOSECONDS  # timers within one tick are due together (up to 2**22 s)
        self._has_run = False

    def time(self) -> float:
        return self._clock.now()

    def run_forever(self) -> None:
        self._has_run = True
        self._clock._begin(self._party)
        try:
            with self._clock._in_this_thread(self._party):
                super().run_forever()
        finally:
            self._clock._end(self._party)

    def call_soon_threadsafe(  # type: ignore[override]  # typeshed types it with a TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        with self._clock._lock:
            handle = super().call_soon_threadsafe(callback, *args, context=context)
            if self._virtual_selector.is_blocked:
                self._clock._resume(self._party)
            elif not self._has_run:  # its thread may begin late: time must not jump past what it has to do
                self._clock._begin(self._party)
            return handle

    def close(self) -> None:
        super().close()
        self._clock._end(self._party)

    def run_in_executor(  # type: ignore[override]  # as above
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        """Time stands still from here until the loop has the result, unless the function itself sleeps."""
        if isinstance(executor, ProcessPoolExecutor):
            return super().run_in_executor(executor, func, *args)  # another process has no part in this clock
        party = Party()

        def work() -> Result:
            with self._clock._in_this_thread(party):
                return func(*args)

        self._clock._begin(party)
        try:
            future = super().run_in_executor(executor, work)
        except BaseException:
            self._clock._end(party)
            raise
        future.add_done_callback(lambda _: self._clock._end(party))
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Without the time-out: joining real threads takes no virtual time, and would run into it."""
        await super().shutdown_default_executor()

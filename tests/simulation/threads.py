"""Threads of a history: they run only when it is their turn, and may be interrupted between any two lines.

A thread is started and woken by the loop and gives the turn back when it waits or ends. What several threads touch
without a lock (`INTERRUPTED`) is interrupted where the seed says so: whoever else is ready then goes first.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from rewardcore import calls, judge, notices, stream

if TYPE_CHECKING:
    from tests.simulation.stage import Stage

#: Real seconds in which a thread whose turn it is gets on; one that does not waits for a lock that nobody gives back.
PATIENCE = 20.0
#: Files of which no line is run with a lock held, but for `say`, which others call with theirs.
INTERRUPTED = {module.__file__ for module in (calls, judge, notices, stream)}


class Deadlock(AssertionError):
    """Somebody waits for what can never come."""


class _Dismissed(BaseException):
    """The history is over, and this thread with it."""


class Thread:
    """A real thread that runs only between two of the loop's callbacks."""

    _here = threading.local()

    def __init__(self, stage: Stage, work: Callable[[], Any], *, is_interrupted: bool = True) -> None:
        self.done: asyncio.Future[Any] = stage.create_future()
        self.context = contextvars.copy_context()
        self._stage = stage
        self._work = work
        self._is_interrupted = is_interrupted and stage.interrupts is not None
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._is_dismissed = False
        self.away = 0.0  # seconds for which it was interrupted
        self._thread: threading.Thread | None = None
        stage.threads.append(self)
        self.wake()

    @classmethod
    def current(cls) -> Thread:
        thread: Thread | None = getattr(cls._here, "thread", None)
        if thread is None:
            raise Deadlock("the loop's own thread waits for what only the loop could do")
        return thread

    def wake(self) -> None:
        """It has its turn soon, unless its process is stopped."""
        self._stage.call_soon(self._resume, context=self.context)

    def _resume(self) -> None:
        """On the loop: it runs until it waits or ends."""
        if self._outcome is not None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=[self.context.copy()], daemon=True)
            self._thread.start()
        else:
            self._turn.release()
        if not self._back.acquire(timeout=PATIENCE):
            raise Deadlock("a thread waits for a lock, and whoever has it waits too")
        if self._outcome is not None and not self.done.done():
            result, error = self._outcome
            if error is None:
                self.done.set_result(result)
            else:
                self.done.set_exception(error)

    def pause(self) -> None:
        """In the thread: the others go on until it is resumed."""
        if self._is_dismissed:
            raise _Dismissed
        self._back.release()
        self._turn.acquire()
        if self._is_dismissed:
            raise _Dismissed

    def dismiss(self) -> None:
        self._is_dismissed = True
        if self._thread is not None and self._outcome is None:
            self._turn.release()
            self._thread.join(PATIENCE)
        if not self.done.done():
            self.done.cancel()

    def _run(self, context: contextvars.Context) -> None:
        self._here.thread = self
        result, error = None, None
        try:
            if self._is_interrupted:
                sys.settrace(self._called)
            result = context.run(self._work)
        except BaseException as raised:
            error = raised
        finally:
            sys.settrace(None)
        self._outcome = result, error
        self._back.release()

    def _called(self, frame: FrameType, *_: object) -> Any:
        code = frame.f_code
        is_ours = code.co_filename in INTERRUPTED or code.co_name.startswith("interrupted")
        return self._at_line if is_ours and code.co_name != "say" else None

    def _at_line(self, _: FrameType, event: str, __: object) -> Any:
        interrupts = self._stage.interrupts
        if event != "line" or interrupts is None or self._is_dismissed:
            return self._at_line
        if (seconds := interrupts()) is not None:
            self.away += seconds
            self._stage.away += seconds
            self._stage.call_later(seconds, self._resume, context=self.context)
            self.pause()
        return self._at_line


def is_in_thread() -> bool:
    return getattr(Thread._here, "thread", None) is not None


class Event:
    """threading.Event for the threads of a history."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._is_set = False
        self._waiting: dict[Thread, asyncio.TimerHandle | None] = {}

    def set(self) -> None:
        self._is_set = True
        for thread in list(self._waiting):
            self._wake(thread)

    def is_set(self) -> bool:
        return self._is_set

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        thread = Thread.current()
        if self._is_set or (timeout is not None and timeout <= 0):
            return self._is_set
        self._waiting[thread] = None
        if timeout is not None:
            self._waiting[thread] = self._stage.call_later(timeout, self._wake, thread, context=thread.context)
        thread.pause()
        return self._is_set

    def _wake(self, thread: Thread) -> None:
        if thread in self._waiting:
            timer = self._waiting.pop(thread)
            if timer is not None:
                timer.cancel()
            thread.wake()


class Lock:
    """threading.RLock, where whoever has it may sleep; never for the loop, which waits for nobody."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._owner: Thread | None = None
        self._depth = 0
        self._free = Event(stage)

    def __enter__(self) -> None:
        thread = Thread.current()
        while self._owner not in (None, thread):
            self._free.clear()
            self._free.wait()
        self._owner, self._depth = thread, self._depth + 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._free.set()


class Executor:
    """A ThreadPoolExecutor of one thread: one thing after the other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._latest: Event | None = None

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        before, self._latest = self._latest, Event(self._stage)
        ended = self._latest

        def do() -> None:
            if before is not None:
                before.wait()
            try:
                work(*arguments)
            finally:
                ended.set()

        Thread(self._stage, do, is_interrupted=False)

    def shutdown(self) -> None:
        if self._latest is not None:
            self._latest.wait()

"""Where a history is played: one loop, virtual time, and threads that run only when it is their turn.

Exactly one thing runs at any moment. A thread of the history is started and woken by the loop and gives the turn back
when it waits or ends, so the same seed is the same history, to the last callback. When nothing is left to do at
this instant, `quiet` is called and time jumps on; when nothing will ever happen again, that is a deadlock.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from rewardcore.calls import never_waits

#: No history takes longer; one that does never ends.
LONGEST = 100_000.0
#: Real seconds in which a thread whose turn it is gets on; one that does not waits for a lock that nobody gives back.
PATIENCE = 20.0


class Deadlock(AssertionError):
    """Somebody waits for what can never come."""


class _Selector(selectors.DefaultSelector):
    """Where a loop would wait, time jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.quiet: Callable[[], object] = lambda: None

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        self.quiet()
        if timeout is None or self.now > LONGEST:
            raise Deadlock("everybody waits, and nothing is due" if timeout is None else "it goes on for ever")
        self.now += timeout
        return []


class Stage(asyncio.SelectorEventLoop):
    """The loop of a history, and its clock (a rewardcore Clock by its methods)."""

    def __init__(self) -> None:
        self._time = _Selector()
        super().__init__(self._time)
        self._clock_resolution = 1e-9
        self.threads: list[Thread] = []
        self.wrong: BaseException | None = None
        self.set_exception_handler(self._note)

    def _note(self, _: object, context: dict[str, Any]) -> None:
        """Whatever only the loop sees ends the history."""
        self.wrong = self.wrong or context.get("exception") or Deadlock(str(context))
        self.stop()

    def play(self, main: Coroutine[Any, Any, None], quiet: Callable[[], object]) -> None:
        """To the end, or to the first thing that is wrong; no thread is left either way."""
        self._time.quiet = quiet
        never_waits.here = True
        try:
            self.run_until_complete(main)
        except BaseException as error:
            raise self.wrong or error from None
        finally:
            never_waits.here = False
            for thread in self.threads:
                thread.dismiss()
            for task in asyncio.all_tasks(self):
                task.cancel()
            self._time.quiet = lambda: None
            self.call_soon(self.stop)
            self.run_forever()
            self.close()

    def time(self) -> float:
        return self._time.now

    now = time

    def event(self) -> Event:
        return Event(self)

    def sleep(self, seconds: float) -> None:
        Event(self).wait(seconds)

    def start_thread(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return Thread(self, work).done

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        return self.start_thread(lambda: func(*args))

    # What a driver wants of a LoopThread.

    @property
    def loop(self) -> Stage:
        return self

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """From a thread of the history: the loop runs it to its end."""
        task, ended = self.create_task(main), self.event()
        task.add_done_callback(lambda _: ended.set())
        ended.wait()
        return task.result()

    def release(self) -> None:
        pass


class _Dismissed(BaseException):
    """The history is over, and this thread with it."""


class Thread:
    """A real thread that runs only between two of the loop's callbacks."""

    _here = threading.local()

    def __init__(self, stage: Stage, work: Callable[[], Any]) -> None:
        self.done: asyncio.Future[Any] = stage.create_future()
        self._stage = stage
        self._work = work
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._is_dismissed = False
        self._thread: threading.Thread | None = None
        stage.threads.append(self)
        stage.call_soon(self.resume)

    @classmethod
    def current(cls) -> Thread:
        thread: Thread | None = getattr(cls._here, "thread", None)
        if thread is None:
            raise Deadlock("the loop's own thread waits for what only the loop could do")
        return thread

    def resume(self) -> None:
        """On the loop: it runs until it waits or ends."""
        if self._outcome is not None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
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

    def _run(self) -> None:
        self._here.thread = self
        result, error = None, None
        try:
            result = self._work()
        except BaseException as raised:
            error = raised
        self._outcome = result, error
        self._back.release()


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

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        thread = Thread.current()
        if self._is_set or (timeout is not None and timeout <= 0):
            return self._is_set
        self._waiting[thread] = None
        if timeout is not None:
            self._waiting[thread] = self._stage.call_later(timeout, self._wake, thread)
        thread.pause()
        return self._is_set

    def _wake(self, thread: Thread) -> None:
        if thread in self._waiting:
            timer = self._waiting.pop(thread)
            if timer is not None:
                timer.cancel()
            self._stage.call_soon(thread.resume)

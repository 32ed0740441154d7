"""Where a history is played: one loop and virtual time, for every process of the history at once.

Exactly one thing runs at any moment, so the same seed is the same history, to the last callback. When nothing is left
to do at this instant, `quiet` is called and time jumps on; when nothing will ever happen again, that is a deadlock.
What runs in a process that is stopped is held back, and for ever in one that is dead: the context says whose it is.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any

from tests.simulation.threads import Deadlock, Event, Thread, is_in_thread

#: No history takes longer; one that does never ends.
LONGEST = 100_000.0
#: Whose code runs; None is the process that the callers live in.
PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """What is held back while it does not run."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.runs, self.is_dead = True, False
        self.resumed_at = 0.0
        self.held: list[asyncio.Handle] = []

    def stop(self) -> None:
        self.runs = False

    def go_on(self) -> None:
        if not self.is_dead:
            self.runs, self.resumed_at = True, self.stage.now()
            held, self.held = self.held, []
            self.stage._ready.extend(held)  # type: ignore[attr-defined]


class _Held:
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if process.runs:
            super()._run()  # type: ignore[misc]
        elif not process.is_dead:
            process.held.append(self)


class _HeldHandle(_Held, asyncio.Handle):
    __slots__ = ()


class _HeldTimer(_Held, asyncio.TimerHandle):
    __slots__ = ()


class _Selector(selectors.DefaultSelector):
    """Where a loop would wait, time jumps. Nothing here comes from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.quiet: Callable[[], object] = lambda: None

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout > 0:
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
        self.resumed_at = self.suspended = self.away = 0.0  # `away` is how long threads were interrupted, all in all
        #: For how many seconds a thread is interrupted between two lines of what several threads touch, if it is.
        self.interrupts: Callable[[], float | None] | None = None
        self.set_exception_handler(self._note)

    def _note(self, _: object, context: dict[str, Any]) -> None:
        """Whatever only the loop sees ends the history."""
        self.wrong = self.wrong or context.get("exception") or Deadlock(str(context))
        self.stop()

    def play(self, main: Coroutine[Any, Any, None], quiet: Callable[[], object]) -> None:
        """To the end, or to the first thing that is wrong; no thread is left either way."""
        self._time.quiet = quiet
        try:
            self.run_until_complete(main)
        except BaseException as error:
            raise self.wrong or error from None
        finally:
            self.interrupts = None
            for thread in self.threads:
                thread.dismiss()
            for task in asyncio.all_tasks(self):
                task.cancel()
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # of a process that is dead
            self._time.quiet = lambda: None
            self.call_soon(self.stop)
            self.run_forever()
            self.close()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = super().call_soon(callback, *args, context=context)
        if handle._context.get(PROCESS) is not None:  # type: ignore[attr-defined]
            handle.__class__ = _HeldHandle
        return handle

    call_soon_threadsafe = call_soon  # whoever calls it, nothing else runs

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:
        handle = super().call_at(when, callback, *args, context=context)
        if handle._context.get(PROCESS) is not None:  # type: ignore[attr-defined]
            handle.__class__ = _HeldTimer
        return handle

    def time(self) -> float:
        return self._time.now

    now = monotonic = time

    def event(self) -> Event:
        return Event(self)

    def suspend(self, seconds: float) -> None:
        """Nobody does anything for so long, as when a machine sleeps."""
        self._time.now += seconds
        self.suspended += seconds
        self.resumed_at = self._time.now

    def sleep(self, seconds: float) -> None:
        """In a thread it waits; on the loop nothing goes on meanwhile."""
        if is_in_thread():
            Event(self).wait(seconds)
        elif seconds > 0:
            self.suspend(seconds)

    def start_thread(self, work: Callable[[], Any], *, is_interrupted: bool = True) -> asyncio.Future[Any]:
        return Thread(self, work, is_interrupted=is_interrupted).done

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        return self.start_thread(lambda: func(*args))

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        """Only of a played process: whoever waits for its end."""
        fd.watch(lambda: callback(*args))

    def remove_reader(self, fd: Any) -> Any:
        return fd.unwatch() if hasattr(fd, "unwatch") else super().remove_reader(fd)

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

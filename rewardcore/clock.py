"""Time as the judges see it: the only place that reads a clock or sleeps, so that a benchmark can bring its own.

A virtual clock is this class with time that jumps; its event loop's `time()` must agree with `now()`.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Protocol


class Event(Protocol):
    """What a thread waits for, for so long at most; None is for ever."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


#: A Ctrl-C in the moment before a thread sleeps would wake it only when all is over: so often, whoever waits looks up.
LOOK_UP_SECONDS = 0.5


class _Event(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not super().wait(min(LOOK_UP_SECONDS, until - time.monotonic())):
            if time.monotonic() >= until:
                return False
        return True


class Clock:
    """The machine's monotonic clock; its event loop is uvloop's where that is installed."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> Event:
        return _Event()

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        try:
            import uvloop
        except ImportError:
            return asyncio.new_event_loop()
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop


SYSTEM_CLOCK = Clock()

"""A polite kill as an exception, so that `with` and `finally` see it: SIGTERM ends a Python process without either."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ..interrupts import Terminated

__all__ = ["Terminated", "terminating_on_sigterm"]


@contextlib.contextmanager
def terminating_on_sigterm() -> Iterator[None]:
    """Within, SIGTERM raises `Terminated` in the main thread. In another thread, and where somebody else handles
    SIGTERM already, it changes nothing."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated

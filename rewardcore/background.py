"""One event loop in one daemon thread per process, shared by every asyncio judge and gone with the last of them.

Calls come in from any thread, also from inside another running loop. After a fork the child knows nothing of the
parent's loop, which its judge keeps alive there, so that no finaliser touches the parent's sockets; it starts its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from .clock import Clock

T = TypeVar("T")

_lock = threading.Lock()
_loops: dict[Clock, BackgroundLoop] = {}


class BackgroundLoop:
    """Use `acquire` and `release`; every judge that acquired it releases it once."""

    def __init__(self, clock: Clock) -> None:
        self.loop = clock.new_event_loop()
        self._clock = clock
        self._users = 0
        self._thread = threading.Thread(target=self._run, name="rewardcore-loop", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, clock: Clock) -> BackgroundLoop:
        with _lock:
            background = _loops.get(clock) or _loops.setdefault(clock, cls(clock))
            background._users += 1
            return background

    def release(self) -> None:
        with _lock:
            self._users -= 1
            if self._users:
                return
            _loops.pop(self._clock, None)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, from another thread."""
        future: concurrent.futures.Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())  # where names are looked up
        finally:
            self.loop.close()


def _forget_the_parents_loops() -> None:
    global _lock
    _lock = threading.Lock()
    _loops.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents_loops)

"""One event loop in one daemon thread per process, shared by every judge that needs one and gone with the last of them.

Calls come in from any thread, also from inside another running loop. After a fork the child starts its own, and keeps
the parent's, without using it, so that no finaliser touches the parent's sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ...calls import at_work, check_may_wait
from ...clock import LOOK_UP_SECONDS, Clock
from ...forks import no_fork

T = TypeVar("T")

#: How long a thread that nothing can interrupt is waited for: one that looks up a name.
_PATIENCE_SECONDS = 2.0

_loops: dict[tuple[int, Clock], LoopThread] = {}


class LoopThread:
    """Use `acquire` and `release`; every judge that acquired it releases it once."""

    def __init__(self, clock: Clock) -> None:
        self.loop = clock.new_event_loop()
        self._clock = clock
        self._users = 0
        self._executor = ThreadPoolExecutor(thread_name_prefix="rewardcore-lookup")
        self.loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._run, name="rewardcore-loop", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, clock: Clock) -> LoopThread:
        with no_fork:
            key = (os.getpid(), clock)
            found = _loops.get(key) or _loops.setdefault(key, cls(clock))
            found._users += 1
            return found

    def release(self) -> None:
        with no_fork:
            self._users -= 1
            if self._users:
                return
            _loops.pop((os.getpid(), self._clock))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, from another thread."""
        check_may_wait()
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        while not wait([future], LOOK_UP_SECONDS).done:
            pass
        return future.result()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            with at_work():
                self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            shut_down(self._executor)
        finally:
            self.loop.close()


def shut_down(executor: ThreadPoolExecutor) -> None:
    closer = threading.Thread(target=executor.shutdown, kwargs={"cancel_futures": True}, daemon=True)
    with contextlib.suppress(RuntimeError):  # at the interpreter's exit, which has joined them, no thread can start
        closer.start()
        closer.join(_PATIENCE_SECONDS)

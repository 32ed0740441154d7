"""Who else is on our GPU while we measure: nvidia-smi is asked now and then, and a process that is not ours is dirt.

Others on another GPU are none. Where nvidia-smi is not there, or shows no process, as in many containers, nobody can
tell; that is said, and is no dirt.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import psutil

from rewardcore.memory.neighbours import Process, processes

SECONDS = 5.0


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Looks at once, now and then, and at the end; `is_blind` where nobody could ever tell."""

    def __init__(self, listed: Callable[[], list[Process]] = processes, seconds: float = SECONDS) -> None:
        self.is_blind = True
        self._seen: set[Process] = set()
        self._listed, self._seconds = listed, seconds
        self._ours: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="gpu-watch", daemon=True)

    def strangers_on(self, gpu: str) -> list[str]:
        """Those that were seen on the GPU with this UUID, and are not ours."""
        return sorted(str(process) for process in self._seen if process.gpu == gpu)

    def look(self) -> None:
        found = self._strangers()
        if found:  # one of ours that was born or died between the two lists is not in both
            found &= self._strangers()
        self._seen |= found

    def _strangers(self) -> set[Process]:
        self._ours |= _descendants()
        listed = self._listed()
        self._ours |= _descendants()
        self.is_blind = self.is_blind and not listed
        return {process for process in listed if process.pid not in self._ours}

    def __enter__(self) -> Watch:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()

    def _go_on(self) -> None:
        while not self._over.wait(self._seconds):
            self.look()

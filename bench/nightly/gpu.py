"""Who else is on the GPU while we measure: nvidia-smi is asked now and then, and a process that is not ours is dirt.

Where it is not there, or shows no process, as in many containers, nobody can tell; that is said, and is no dirt.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Container

import psutil

_QUERY = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
SECONDS = 5.0


def listed() -> str:
    """What nvidia-smi says of the GPUs that we may use; nothing where there is nobody to ask."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = [*_QUERY, *(["-i", visible] if visible else [])]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def strangers(listing: str, ours: Container[int]) -> set[str]:
    """Those on the GPU that are not `ours`, by what nvidia-smi says of them."""
    rows = [[cell.strip() for cell in line.split(",")] for line in listing.splitlines()]
    processes = [row for row in rows if len(row) > 1 and row[0].isdigit()]
    return {f"{row[1]} (pid {row[0]})" for row in processes if int(row[0]) not in ours}


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Looks at once, now and then, and at the end; `seen` are strangers, `is_blind` where nobody could ever tell."""

    def __init__(self, listed: Callable[[], str] = listed, seconds: float = SECONDS) -> None:
        self.seen: set[str] = set()
        self.is_blind = True
        self._listed, self._seconds = listed, seconds
        self._ours: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="gpu-watch", daemon=True)

    def look(self) -> None:
        found = self._strangers()
        if found:  # one of ours that was born or died between the two lists is not in both
            found &= self._strangers()
        self.seen |= found

    def _strangers(self) -> set[str]:
        self._ours |= _descendants()
        listing = self._listed()
        self._ours |= _descendants()
        self.is_blind = self.is_blind and not listing.strip()
        return strangers(listing, self._ours)

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

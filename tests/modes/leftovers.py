"""What a process still holds: threads, child processes, sockets. Read from the system, not from the library."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def threads() -> set[str]:
    return {f"{thread.name} {thread.ident}" for thread in threading.enumerate() if thread.name.startswith("rewardcore")}


def other_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread is not threading.main_thread()}


def children() -> set[int]:
    """Child processes that run; multiprocessing's resource tracker serves the whole interpreter and does not count."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(entry) == os.getpid() and b"resource_tracker" not in _command(entry):
            found.add(int(entry.name))
    return found


def sockets() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:  # the directory's own descriptor
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def everything() -> dict[str, list[str]]:
    """For a script to print: all empty when nothing is left."""
    return {
        "threads": sorted(other_threads()),
        "children": sorted(map(str, children())),
        "sockets": sorted(sockets()),
    }


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""

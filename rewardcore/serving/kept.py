"""A command that does not outlive us: started by a keeper (keeper.py) in a session of its own, never through a shell.

It ends at `stop`, when the object is forgotten, at the interpreter's exit, and when this process dies in whatever way.
From any thread; after a fork it stays the parent's alone. What the command is for is its caller's to know.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from ..forks import at_fork

_KEEPER = Path(__file__).with_name("keeper.py")
#: What the keeper may need beyond the grace, and to kill.
_KEEPER_SECONDS = 5.0


class KeptProcess:
    """Runs as soon as it is made; its output goes to `log`."""

    def __init__(self, command: Sequence[str], log: IO[bytes], environment: Mapping[str, str], grace: float) -> None:
        keeper = subprocess.Popen(
            [sys.executable, "-P", str(_KEEPER), str(grace), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            bufsize=0,
            start_new_session=True,  # Ctrl-C at the terminal is ours to handle
        )
        self._state = _State(keeper, grace)
        self._stop = weakref.finalize(self, self._state.stop)
        _running.add(self)

    @property
    def pid(self) -> int | None:
        """The command's; its process group has the same number. None before it is known."""
        return self._state.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and where it was never told; below 0 it is a signal's number."""
        return self._state.exit_code

    @property
    def was_stopped(self) -> bool:
        return not self._stop.alive

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, or ends within so many seconds."""
        return self._state.wait(seconds, until_empty=False)

    def has(self, pid: int) -> bool:
        """Whether that process is one of the command's."""
        return self._state.has(pid)

    def stop(self, grace: float | None = None) -> None:
        """SIGTERM, SIGKILL after the grace; back when nobody is left. Twice is fine. A second Ctrl-C kills at once."""
        if grace is not None:
            self._state.patience = grace
        self._stop()
        self._state.wait(0.0, until_empty=True)  # behind another thread that stops it

    def disown(self) -> None:
        self._stop.detach()
        self._state.disown()


class _State:
    """What must live as long as the keeper does, apart from the object that may be forgotten."""

    def __init__(self, keeper: subprocess.Popen[bytes], grace: float) -> None:
        self.pid: int | None = None
        self.exit_code: int | None = None
        self.patience = grace + _KEEPER_SECONDS  # seconds from SIGTERM until we ask for SIGKILL: the keeper did before
        self._keeper = keeper
        self._is_over = False  # the keeper has said all that it had to say
        self._is_ours = True
        self._told = b""
        self._lock = threading.RLock()

    def wait(self, seconds: float, until_empty: bool) -> bool:
        """Until the command has ended, or with `until_empty` until every process of it has."""
        assert self._keeper.stdout is not None
        if not self._is_ours:
            return not psutil.pid_exists(self._keeper.pid)
        until = time.monotonic() + seconds
        with self._lock, selectors.DefaultSelector() as selector:
            if not self._is_over and not self._keeper.stdout.closed:
                selector.register(self._keeper.stdout, selectors.EVENT_READ)
                while not (self._is_over or (self.exit_code is not None and not until_empty)):
                    if not selector.select(max(0.0, until - time.monotonic())):
                        break
                    self._read(self._keeper.stdout.read(4096) or b"")
            return self._is_over or (self.exit_code is not None and not until_empty)

    def has(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return os.getsid(pid) == self._keeper.pid
        return False

    def _read(self, told: bytes) -> None:
        self._is_over = not told
        *lines, self._told = (self._told + told).split(b"\n")
        for word, number in (line.split() for line in lines):
            if word == b"pid":
                self.pid = int(number)
            else:
                self.exit_code = int(number)

    def stop(self) -> None:
        with self._lock:
            try:
                self._ask(b"t")
                is_over = self.wait(self.patience, until_empty=True)
            except BaseException:  # such as a second Ctrl-C: whoever is in a hurry waits for no grace
                self._end(is_over=False)
                raise
            self._end(is_over)

    def _end(self, is_over: bool) -> None:
        if not is_over:
            self._ask(b"k")
            if not self.wait(_KEEPER_SECONDS, until_empty=True):
                self._keeper.kill()  # somebody has stopped it
        if self.exit_code is None and self.pid is not None:  # the keeper itself was killed
            with contextlib.suppress(OSError):
                if self.has(self.pid):  # and the number was not given out again
                    os.killpg(self.pid, signal.SIGKILL)
        self._keeper.wait()
        self._close()

    def _ask(self, order: bytes) -> None:
        assert self._keeper.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended by itself, or been closed
            self._keeper.stdin.write(order)

    def disown(self) -> None:
        """After a fork, in the child: it must neither hold the lifeline nor stop what is its parent's."""
        self._is_ours, self._lock = False, threading.RLock()
        self._keeper.returncode = 0  # so that nobody warns of a child that is not ours
        self._close()

    def _close(self) -> None:
        self._is_over = True
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _disown_all() -> None:
    for kept in list(_running):
        kept.disown()


_running: weakref.WeakSet[KeptProcess] = weakref.WeakSet()
at_fork(after_in_child=_disown_all)

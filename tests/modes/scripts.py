"""Small programs in a Python of their own: for signals, forks and exits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SECONDS = 150.0  # only a defect takes longer, however busy the machine is


@contextmanager
def started(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The running script, in a process group of its own."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "script.py")
        path.write_text(source)
        with _python(str(path), *arguments) as process:
            yield process


@contextmanager
def _python(*arguments: str, stdin: int | None = None, cwd: str | None = None) -> Iterator[subprocess.Popen[str]]:
    with _hang_up_not_ignored():
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "error"},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # with its children: one that hangs would keep the pipes open
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextmanager
def _hang_up_not_ignored() -> Iterator[None]:
    """Under nohup, whoever is started ignores SIGHUP too; what has a handler here is the default there."""
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def ended(process: subprocess.Popen[str], given: str | None = None) -> tuple[str, str, int]:
    """What it printed, what it complained about, and its exit code."""
    output, errors = process.communicate(given, timeout=_SECONDS)
    return output, errors, process.returncode


def run_script(source: str, *arguments: str) -> tuple[str, str, int]:
    with started(source, *arguments) as process:
        return ended(process)


def run_piped(source: str, *arguments: str) -> tuple[str, str, int]:
    """As `python -` runs it, from its standard input."""
    with _python("-", *arguments, stdin=subprocess.PIPE) as process:
        return ended(process, source)


def run_inline(source: str, *arguments: str) -> tuple[str, str, int]:
    """As `python -c` runs it, and as a notebook does: its `__main__` is no file."""
    with _python("-c", source, *arguments) as process:
        return ended(process)


def run_package(source: str, *arguments: str) -> tuple[str, str, int]:
    """As `python -m` runs a package: no child ever imports its `__main__.py` again."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "trainer", "__main__.py")
        path.parent.mkdir()
        path.write_text(source)
        with _python("-m", "trainer", *arguments, cwd=directory) as process:
            return ended(process)

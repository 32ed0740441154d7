"""Small programs in a Python of their own: for signals, forks and exits."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SECONDS = 60.0


@contextmanager
def started(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The running script, in a process group of its own."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONWARNINGS": "error"}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "script.py")
        path.write_text(source)
        process = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    """What it printed, what it complained about, and its exit code."""
    output, errors = process.communicate(timeout=_SECONDS)
    return output, errors, process.returncode


def run_script(source: str, *arguments: str) -> tuple[str, str, int]:
    with started(source, *arguments) as process:
        return ended(process)

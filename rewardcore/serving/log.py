"""What a server says, in a file: kept from run to run, and read from where this run began when somebody must be told.

`sentence` decides, without IO, what a death means.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from ..failures import ConfigurationError

_TAIL_BYTES, _TAIL_LINES, _LINE_LENGTH = 64 * 1024, 20, 300
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?([A-Z]+ [\d-]+ [\d:]+ \[[^]]*\] )?")
_COMPLAINT = re.compile(r"\b(?:[A-Za-z_.]*(?:Error|Exception)|error): .+")
_ECHO = "See root cause above"  # vLLM's server, of what its engine complained of before
#: What a log tells of, and what to do then.
_ADVICE = (
    ("unrecognized arguments|error: argument |error: the following arguments", "mend arguments (--vllm-arg)"),
    (
        "out of memory|OutOfMemory|memory for the cache blocks|Free memory on device|larger than the maximum",
        "give it less with --gpu-memory-utilization or --max-model-len, or free the device",
    ),
    (
        "GatedRepo|RepositoryNotFound|OfflineMode|not a valid model identifier|[Cc]an't load the configuration",
        "fetch the model first (hf download NAME --local-dir DIRECTORY) and give the directory as model_path",
    ),
    ("Address already in use", "choose another port, or 0 for one that is free"),
    ("ModuleNotFoundError|ImportError|undefined symbol", "mend the installation of vLLM, in an environment of its own"),
)


class ServerLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = 0

    @contextlib.contextmanager
    def opened(self, command: Sequence[str]) -> Iterator[IO[bytes]]:
        """To be written by a server that is started now; below what earlier ones have said."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("ab")
        except OSError as error:
            raise ConfigurationError(f"log_dir: {self.path} cannot be written ({error}); choose another") from None
        with file:
            self._began = file.tell()
            file.write(f"# {time.strftime('%Y-%m-%d %H:%M:%S')}  {shlex.join(command)}\n".encode())
            file.flush()
            self._began = file.tell()
            yield file

    def lines(self) -> list[str]:
        """The last ones of this run, as a person would see them."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, 2)
                begin = max(self._began, end - _TAIL_BYTES)
                file.seek(begin)
                text = file.read(end - begin).decode(errors="replace")
        except OSError:
            return []
        # A bar that was drawn again and again is one line: its last state.
        rows = (_ESCAPES.sub("", row.rstrip("\r").rpartition("\r")[2]).rstrip() for row in text.split("\n"))
        return [row[:_LINE_LENGTH] for row in rows if row]

    def tail(self) -> str:
        return "\n".join(self.lines()[-_TAIL_LINES:])

    def last_line(self) -> str:
        """Without what stands before every line of vLLM's: process, level, time and place."""
        return next((_PREFIX.sub("", line).strip() for line in self.lines()[-1:]), "")


def sentence(how: str, exit_code: int | None, lines: Sequence[str], path: Path) -> str:
    """What a person is told of a server that has ended: how, why if its log tells, and what to do."""
    if exit_code is None:
        how += " (its keeper was killed)"
    elif exit_code < 0:
        how += f" (killed by {_signal_name(-exit_code)})"
    else:
        how += f" (exit code {exit_code})"
    complaints = [found[0] for line in lines if (found := _COMPLAINT.search(line)) and _ECHO not in line]
    why = f": {complaints[-1]}" if complaints else ""
    advice = f"see {path}"
    if exit_code == -signal.SIGKILL:
        advice = f"if nobody killed it, the machine has run out of memory, which dmesg tells; {advice}"
    for pattern, what in _ADVICE:
        if any(re.search(pattern, line) for line in lines):
            advice = f"{what}; {advice}"
            break
    return f"vLLM {how}{why}; {advice}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

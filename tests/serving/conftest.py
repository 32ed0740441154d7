"""VllmServer with a small program in vLLM's place, and what is left of it in the end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rewardcore as rc
from tests.serving import fake

SECONDS = 90.0


def until(condition: Callable[[], object]) -> bool:
    """Whether it comes true: looked at again and again, for so long that only a defect takes longer."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Stand:
    """Makes servers, and knows the processes that they had."""

    def __init__(self, directory: Path) -> None:
        self.model = directory / "model-7b"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        self.logs = directory / "logs"
        self._pids = directory / "pids"

    def server(self, *behaviour: str, **options: object) -> rc.VllmServer:
        options = {"port": 0, "log_dir": self.logs, "progress": False} | options
        return rc.VllmServer(self.model, arguments=self.arguments(*behaviour), **options)

    def arguments(self, *behaviour: str) -> list[str]:
        return ["--pids", str(self._pids), *behaviour]

    def script(self, source: str, *behaviour: str) -> str:
        """A program of a user's: `server` is made, and `source` says what becomes of it."""
        options = {"port": 0, "log_dir": str(self.logs), "progress": False, "arguments": self.arguments(*behaviour)}
        return f"{fake.SET_UP}\nserver = rewardcore.VllmServer({str(self.model)!r}, **{options!r})\n{source}"

    def pids(self) -> list[int]:
        assert until(self._pids.exists), "it never ran"
        return [int(pid) for pid in self._pids.read_text().split()]

    def clear(self) -> None:
        """What a failed test has left."""
        for pid in map(int, self._pids.read_text().split() if self._pids.exists() else ()):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                if fake.PROGRAM in command or fake.DEAF in command:
                    os.kill(pid, signal.SIGKILL)

    def all_are_gone(self) -> bool:
        pids = self.pids()
        return until(lambda: not any(map(is_alive, pids)))

    def all_are_gone_now(self) -> bool:
        return not any(map(is_alive, self.pids()))


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    fake.put_in_place(monkeypatch.setattr)
    stand = Stand(tmp_path)
    yield stand
    stand.clear()

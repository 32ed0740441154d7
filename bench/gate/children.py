"""Processes that measure: a module of the harness at work, which answers in lines of JSON, and ends with its parent.

Those of the gate see this checkout's harness and nothing else of it; `path` names another place to import from.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

from bench.harness import stand_apart

STDERR_TAIL, TAIL_LINES = 300, 20
#: Seconds without a word after which a child is taken for stuck; what it does takes a few, under valgrind fifty.
PATIENCE = 300.0
LOOK_UP = 0.2
Result = TypeVar("Result")


def environment(path: Path | None = None) -> dict[str, str]:
    """Hashes, threads and the path are the same for every child, whoever started it."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "REWARDCORE"))
    }
    fixed = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    # Records ask git what is checked out: a child that is ended meanwhile must leave no lock in the repository.
    return {**kept, **fixed, "GIT_OPTIONAL_LOCKS": "0", "PYTHONPATH": str(path or stand_apart())}


class Child:
    """A module of the harness at work. It answers in lines of JSON; when it ends early, `death` says how."""

    def __init__(
        self,
        python: Path,
        module: str,
        arguments: Sequence[str],
        wrapper: Sequence[str] = (),
        path: Path | None = None,
        patience: float = PATIENCE,
        grace: float = 0.0,
    ) -> None:
        self._patience, self._grace, self._is_stuck = patience, grace, False
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed in `close`
        # In a directory of its own: `-m` puts where it is started at the head of the path.
        self._directory = tempfile.TemporaryDirectory(prefix="rewardcore-gate-")
        self._process = subprocess.Popen(
            [*wrapper, str(python), "-m", module, *arguments],
            cwd=self._directory.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=environment(path),
            start_new_session=True,  # so that what it started ends with it
        )

    def tell(self, line: str = "") -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def read(self) -> Any:
        """The next answer; None when there is none any more."""
        assert self._process.stdout is not None
        watch = threading.Timer(self._patience, self._lose_patience)
        watch.start()
        try:
            for line in self._process.stdout:
                with contextlib.suppress(json.JSONDecodeError):  # what a package prints is no answer
                    return json.loads(line)
            return None
        finally:
            watch.cancel()

    def _lose_patience(self) -> None:
        self._is_stuck = True
        self.kill()

    def death(self) -> str:
        code = self.wait()
        if self._is_stuck:
            return f"it said nothing for {self._patience:g} s, and was ended"
        said = self.tail()
        return f"its process ended with code {code}: {said[-1] if said else 'it said nothing'}"

    def wait(self) -> int:
        """Its exit code, when it has ended; below 0 a signal's number."""
        return self._process.wait()

    def tail(self) -> list[str]:
        """The last lines that it has said on stderr."""
        self._stderr.seek(0)
        return [line[:STDERR_TAIL] for line in self._stderr.read().strip().splitlines()[-TAIL_LINES:]]

    def end(self) -> None:
        """At once; or with a grace, in which it can put away what it has started in another session, as a server."""
        try:
            if self._grace:
                self._process.terminate()
                self._process.wait(self._grace)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        with self._process:
            self._process.wait()
        self._stderr.close()
        self._directory.cleanup()


_LIVE: set[Child] = set()
_broken_off = threading.Event()


@contextlib.contextmanager
def started(
    python: Path,
    module: str,
    *arguments: str,
    wrapper: Sequence[str] = (),
    path: Path | None = None,
    patience: float = PATIENCE,
    grace: float = 0.0,
) -> Iterator[Child]:
    if _broken_off.is_set():
        raise KeyboardInterrupt
    child = Child(python, module, arguments, wrapper, path, patience, grace)
    _LIVE.add(child)
    try:
        if _broken_off.is_set():  # while it was being started
            child.kill()
        yield child
    finally:
        _LIVE.discard(child)
        child.close()


def at_once(*jobs: Callable[[], Result]) -> list[Result]:
    """Each in a thread, since each waits for a child. Whoever breaks off ends the children, or would wait for them."""
    with ThreadPoolExecutor(len(jobs)) as threads:
        try:
            futures = [threads.submit(job) for job in jobs]
            # Not without end: a signal that comes just before a thread begins to wait is heard only when it looks up.
            while wait(futures, LOOK_UP, FIRST_EXCEPTION).not_done and not any(map(_has_failed, futures)):
                pass
            for future in filter(_has_failed, futures):
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            _broken_off.set()
            for child in list(_LIVE):
                child.end()
            raise


def _has_failed(future: Future[Any]) -> bool:
    return future.done() and future.exception() is not None

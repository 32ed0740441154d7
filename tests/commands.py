"""`rewardcore …` in a process of its own, forked from one that has imported what the commands import.

Most of what a short command takes is importing, which is done once here. All else is its own: its directory, variables,
output and end. Whoever tests the imports themselves, or needs the process while it runs, starts a Python instead.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

_ROOT = Path(__file__).parents[1]
#: Until a command that hangs is ended, with a code that no test expects.
_SECONDS = 150


def rewardcore(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it printed, what it complained about, and its exit code, as `subprocess.run` tells them."""
    words = ["rewardcore", *map(str, arguments)]
    request = {"arguments": words, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        source = _source()
        socket.send_fds(source, [b"!"], [nothing.fileno(), out.fileno(), errors.fileno()])
        with source.makefile("rw") as talk:
            talk.write(json.dumps(request) + "\n")
            talk.flush()
            code = int(talk.readline())
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(words, code, *texts)


@cache
def _source() -> socket.socket:
    """The process that commands are forked from; it ends with its pipe, and so with this one."""
    ours, theirs = socket.socketpair()
    program = f"from tests.commands import serve; serve({theirs.fileno()})"
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"}  # threads cannot be forked
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        pass_fds=[theirs.fileno()],
        stdout=subprocess.DEVNULL,
        cwd=_ROOT,
        env=environment,
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def serve(descriptor: int) -> None:
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # an extra
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else every child, as it ends, copies all that was imported
    talk = socket.socket(fileno=descriptor)
    lines = talk.makefile("rw")
    while True:
        _, files, *_ = socket.recv_fds(talk, 1, 3)
        if not files:
            return
        request = json.loads(lines.readline())
        child = os.fork()
        if child == 0:
            talk.close()
            lines.close()
            _become(request, files)
        for file in files:
            os.close(file)
        lines.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        lines.flush()


#: What the commands import when they are called.
IMPORTED = (
    "aiohttp", "httpcore", "httpx", "matplotlib.backends.backend_agg", "matplotlib.figure", "pyarrow.parquet",
    "rewardcore.cli.machine", "rewardcore.http.cache_prune", "rewardcore.http.check", "rewardcore.http.modes",
    "rewardcore.rejection", "rewardcore.testing.server", "rich.markdown", "rich.progress", "typer.rich_utils", "uvloop",
)  # fmt: skip


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["arguments"]
    signal.alarm(_SECONDS)
    from rewardcore.cli import main

    main()
    sys.exit()

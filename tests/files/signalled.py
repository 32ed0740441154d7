"""Runs a command again and again, each time in a fork that sends itself a signal where a new line of ours is reached.

`python -m tests.files.signalled REQUEST` reads a JSON document and prints one. Every line of the package that the main
thread comes to is a moment; `among` picks some of them. Each run has a directory of its own, and is then run again
without a signal.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import rewardcore
from tests.commands import IMPORTED

_PACKAGE = str(Path(rewardcore.__file__).parent)
_SECONDS = 60

Moment = tuple[str, int]


def at_new_lines(reached: Callable[[Moment], object]) -> None:
    """Of the main thread, in the package; each line once."""
    seen, package = set[Moment](), _PACKAGE  # a local name: modules lose theirs as the interpreter ends

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(package):
            return None
        moment = frame.f_code.co_filename.removeprefix(package), frame.f_lineno
        if event == "line" and moment not in seen:
            seen.add(moment)
            reached(moment)
        return trace

    sys.settrace(trace)


def run(words: list[str], directory: Path, reached: Callable[[Moment], object] | None = None) -> tuple[int, str]:
    """Exit code and stderr."""
    directory.mkdir(exist_ok=True)
    with tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            _become(words, directory, errors.fileno(), reached)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return code, errors.read().decode()


def _become(words: list[str], directory: Path, errors: int, reached: Callable[[Moment], object] | None) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDWR)
    for place, file in ((0, nothing), (1, nothing), (2, errors)):
        os.dup2(file, place)
    os.chdir(directory)
    sys.argv = ["rewardcore", *words]
    signal.alarm(_SECONDS)
    from rewardcore.cli import main

    if reached is not None:
        at_new_lines(reached)
    main()
    sys.exit()


def main(number: int, words: list[str], directory: Path, among: int) -> list[dict[str, Any]]:
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # an extra
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else every child, as it ends, copies all that was imported
    reading, writing = os.pipe()
    run(words, directory / "0", lambda moment: os.write(writing, json.dumps(moment).encode() + b"\n"))
    os.close(writing)
    with open(reading) as lines:
        moments = [(name, line) for name, line in map(json.loads, lines)]
    listening = next(place for place, (name, _) in enumerate(moments) if name == "/cli/ending.py")
    moments = moments[listening:]  # before it, the imports: those are another test's
    found = []
    for place in sorted(random.Random(number).sample(range(len(moments)), min(among, len(moments)))):
        chosen = moments[place]

        def send(moment: Moment, chosen: Moment = chosen) -> None:
            if moment == chosen:
                os.kill(os.getpid(), number)

        here = directory / str(place + 1)
        code, errors = run(words, here, send)
        again, said = run(words, here)
        found.append({"moment": chosen, "code": code, "errors": errors, "again": again, "said": said})
    return found


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    print(json.dumps(main(request["number"], request["words"], Path(request["directory"]), request["among"])))

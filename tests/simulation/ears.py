"""Whoever listens while a history is played: the log's handler, watchers of a batch, and they may raise."""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections.abc import Iterator
from typing import Any

from rewardcore.notices import Losses, Tally, log
from rewardcore.progress import Progress
from tests.simulation.stage import PROCESS
from tests.simulation.world import World, Wrong

_NOT_JUDGED = re.compile(r"(\d+) of \d+ not judged")
_PATH = re.compile(r"/\S*judge\.sqlite")  # which is another one each time
#: What the history's own callers raise when they are told.
NOBODY_READS = "nobody reads"


class Ears(logging.Handler):
    """Every line is noted in the history; one that tells of a defect of ours is Wrong."""

    def __init__(self, world: World, seed: int) -> None:
        super().__init__()
        self._world = world
        self._dice = random.Random(seed)
        self._raises = self._dice.random() < 0.4
        self._lost = self._told = 0

    def emit(self, record: logging.LogRecord) -> None:
        process: Any = PROCESS.get()
        if process is not None and process.ears is not None:
            process.ears.emit(record)
            return
        line = record.getMessage()
        self._world.note(f"log: {_PATH.sub('judge.sqlite', line)}")
        if found := _NOT_JUDGED.match(line):
            self._told += int(found[1])
        is_defect = "an error inside rewardcore" in line or "a call did not reach" in line
        if is_defect and NOBODY_READS not in line:
            raise Wrong(line)
        if self._raises and self._dice.random() < 0.5:
            raise self._dice.choice([OSError("the log's disk is full"), SystemExit("the log exits")])

    def count(self, losses: Losses) -> None:
        """What calls of a judge lose; all of it is to be told."""
        ended = losses.ended

        def counted(tally: Tally, samples: int) -> None:
            self._lost += tally.kinds.total()
            ended(tally, samples)

        losses.ended = counted  # type: ignore[method-assign]

    def check_told(self) -> None:
        if self._told != self._lost:
            raise Wrong(f"{self._lost} samples were not judged, and {self._told} are told")

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        before = log.handlers, log.propagate, log.level
        log.handlers, log.propagate = [self], False
        log.setLevel(logging.DEBUG if self._dice.random() < 0.1 else logging.WARNING)
        try:
            yield
        finally:
            log.handlers, log.propagate = before[:2]
            log.setLevel(before[2])


class ChildsLog:
    """`log` in the module that a child runs: its handler is that process's alone."""

    propagate = True

    def __setattr__(self, name: str, value: Any) -> None:
        process: Any = PROCESS.get()
        if name == "handlers":
            (process.ears,) = value

    def setLevel(self, level: int) -> None:  # as logging writes it
        pass


def watcher(world: World) -> Any:
    """Of a batch; it may raise."""
    raises = world.dice.random() < 0.5

    def watch(progress: Progress) -> None:
        if not 0 <= progress.failed <= progress.done <= progress.total:
            raise Wrong(f"a watcher is told {progress}")
        if raises:
            raise ZeroDivisionError("no bar for nothing")

    return watch

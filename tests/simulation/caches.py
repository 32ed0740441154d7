"""Caches of a history: a caller's own that raises or talks nonsense, and our SqliteCache on a file that fails.

What a cache has `kept` must never be asked for again, as long as it is at work.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rewardcore import MemoryCache
from rewardcore.http import cache, cache_file
from rewardcore.http.cache import SqliteCache
from rewardcore.reply import Reply
from tests.simulation.stage import PROCESS, Stage
from tests.simulation.threads import Executor, Lock
from tests.simulation.world import World, word_of

#: What is a reply to nobody.
NONSENSE: tuple[Any, ...] = (7, ("text", None, None), Reply(None), Reply("text", "many"))  # type: ignore[arg-type]
_SHARED = Path("/dev/shm")


class CallersCache(MemoryCache):
    """Raises for some words, and for some it answers nonsense."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.kept: set[bytes] = set()

    def get(self, key: bytes) -> Reply | None:
        word = self._world.looking_at
        if word.startswith("uncached"):
            raise KeyError("the cache's get raised")
        if word.startswith("unkept"):
            return self._world.dice.choice(NONSENSE)  # type: ignore[no-any-return]
        return super().get(key)

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        word = word_of(material)
        if word.startswith("unkept") and self._world.dice.random() < 0.5:
            raise OSError("the cache's put raised")
        super().put(key, reply, material)
        if not word.startswith("unkept"):
            self.kept.add(material)


class ChildsCache(MemoryCache):
    """Of a process that judges; it is gone with it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[bytes] = set()

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        super().put(key, reply, material)
        self.kept.add(material)


class FileCache(SqliteCache):
    """On a real file; its one writer is a thread of the history."""

    def __init__(self, file: File, stage: Stage) -> None:
        self.kept: set[bytes] = set()
        self.file = file
        super().__init__(file.path)
        self._writing = Lock(stage)  # type: ignore[assignment]  # whoever has it waits for the disk
        process: Any = PROCESS.get()
        if process is not None:
            process.at_death.append(self.let_go)

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        super().put(key, reply, material)
        if self._broken is None:
            self.kept.add(material)

    def let_go(self) -> None:
        """It is lost with its process, or its history."""
        for connection in (self._reader, self._write_connection):
            if connection is not None:
                connection.close()

    @property
    def is_at_work(self) -> bool:
        return self._broken is None and not self.file.is_deleted


class File:
    """A disk with a temper, and on it the file of one history."""

    def __init__(self, dice: random.Random, stage: Stage) -> None:
        self.dice = dice
        self.stage = stage
        self.directory = Path(tempfile.mkdtemp(dir=_SHARED if _SHARED.is_dir() else None))
        self.path = self.directory / "judge.sqlite"
        self.is_deleted = False
        self.fails_at = dice.choice([0.5, 5.0, 30.0, 1e9, 1e9])
        self.until = self.fails_at + dice.choice([0.3, 0.3, 20.0, 1e9])
        self.error = dice.choice(
            [
                sqlite3.OperationalError("database or disk is full"),
                sqlite3.OperationalError("database is locked"),
                sqlite3.OperationalError("database is locked"),
                sqlite3.OperationalError("disk I/O error"),
                sqlite3.DatabaseError("database disk image is malformed"),
            ]
        )

    def connect(self, path: Path, *, prove: bool = False) -> Any:
        if not prove:
            self.meet()
        return _Connection(self, self._really(path, prove=prove))

    def meet(self) -> None:
        """What the disk does about it now."""
        if self.fails_at <= self.stage.now() < self.until:
            raise self.error

    def delete(self) -> None:
        self.is_deleted = True
        for name in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """While it is, every SqliteCache is this one's, and its time is the history's."""
        self._really = cache_file.connect
        clock = _Time(self.stage)
        with (
            patch.multiple(cache, connect=self.connect, _new_writer=lambda: Executor(self.stage), time=clock),
            patch.multiple(cache_file, time=clock),
        ):
            yield
        shutil.rmtree(self.directory, ignore_errors=True)


class _Time:
    def __init__(self, stage: Stage) -> None:
        self.sleep, self.time, self.monotonic = stage.sleep, stage.now, stage.now


class _Connection:
    """sqlite3's, on that disk; a commit takes its time."""

    def __init__(self, file: File, connection: sqlite3.Connection) -> None:
        self._file = file
        self._connection = connection
        self.close = connection.close

    def execute(self, statement: str, *arguments: Any) -> Any:
        self._file.meet()
        if statement.startswith("BEGIN"):
            self._file.stage.sleep(self._file.dice.choice([0.0, 0.3, 2.0]))
            self._file.meet()
        return self._connection.execute(statement, *arguments)

    def executemany(self, *arguments: Any) -> Any:
        self._file.meet()
        return self._connection.executemany(*arguments)

    def __enter__(self) -> Any:
        return self._connection.__enter__()

    def __exit__(self, *exception: Any) -> Any:
        return self._connection.__exit__(*exception)

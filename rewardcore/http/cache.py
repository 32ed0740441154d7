"""Replies that were paid for once: in memory (LRU) or in a SQLite file that several processes share.

Stored are raw replies, never verdicts, so that a better parser can read old replies; and only whole ones: the engine
puts no failure, refusal or truncated reply here. Look-ups are made in place; writes go to a thread that commits them
in batches, and are on disk when `close()` returns. A cache that breaks in mid-run, ours or a caller's, warns once and
steps aside; what is no reply is a miss. No connection crosses a fork: SQLite's locks would not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol, TypeGuard, runtime_checkable

import orjson

from ..arguments import check_whole
from ..failures import CacheError, described, is_ctrl_c
from ..forks import at_fork
from ..notices import Once, say
from ..reply import Reply
from .cache_file import connect, insist

#: How long the writer gathers rows before it commits them: what a SIGKILL can lose, besides what is in flight.
_GATHER_SECONDS = 0.02

#: A reply, its usage as JSON, when it was stored, and what went into its key.
Row = tuple[Reply, str | None, float, bytes]


@runtime_checkable
class Cache(Protocol):
    """What a caller may bring. Where it raises, judging goes on without it."""

    def get(self, key: bytes) -> Reply | None: ...

    def put(self, key: bytes, reply: Reply, material: bytes) -> None: ...

    def close(self) -> None: ...


class GuardedCache:
    """A caller's own cache: whatever it does, it costs no verdict and no request that is not a miss.

    The first time it raises it is told, and it is not asked again. It is the caller's to close.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._is_broken = False
        self._once = Once()

    def get(self, key: bytes) -> Reply | None:
        if self._is_broken:
            return None
        try:
            found = self.cache.get(key)
            if found is None or is_reply(found):
                return found
            self._once.say("nonsense", logging.WARNING, "cache: get returned %.80r, no Reply: taken for a miss", found)
        except BaseException as error:
            self._step_aside("get", error)
        return None

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        if not self._is_broken:
            try:
                self.cache.put(key, reply, material)
            except BaseException as error:
                self._step_aside("put", error)

    def close(self) -> None:
        if isinstance(self.cache, SqliteCache):
            self.cache.flush()

    def _step_aside(self, method: str, error: BaseException) -> None:
        if is_ctrl_c(error):
            raise error
        self._is_broken = True
        self._once.say(
            "broken", logging.WARNING, "cache: %s raised %s; judging goes on without it", method, described(error)
        )


def is_reply(found: object) -> TypeGuard[Reply]:
    """Whatever else a cache may hold, nobody can read."""
    return isinstance(found, Reply) and isinstance(found.text, str) and isinstance(found.usage, dict | None)


def is_path(value: object) -> bool:
    """Of a file: SQLite's own name for none is not one."""
    is_name = isinstance(value, str) and "\0" not in value and value.strip() not in ("", ":memory:")
    return is_name or isinstance(value, os.PathLike)


class MemoryCache:
    """The latest `size` replies of this process; closing a judge does not empty it."""

    def __init__(self, size: int = 10_000) -> None:
        check_whole("size", size)
        self._size = size
        self._replies: OrderedDict[bytes, Reply] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Reply | None:
        with self._lock:
            reply = self._replies.get(key)
            if reply is not None:
                self._replies.move_to_end(key)
            return reply

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        with self._lock:
            self._replies[key] = reply
            self._replies.move_to_end(key)
            if len(self._replies) > self._size:
                self._replies.popitem(last=False)

    def close(self) -> None:
        pass


class SqliteCache:
    """One file, write-ahead logged. Opening it proves that it can be written, or raises CacheError."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not is_path(path):
            raise CacheError(
                f"cache must be the path of a file, not {path!r:.40}; MemoryCache() keeps replies in memory"
            )
        self.path = Path(
            os.path.expanduser(path)
        ).absolute()  # the writer opens it later, and the process may have moved
        if not self.path.parent.is_dir():
            raise CacheError(
                f"cache {self.path}: the directory {self.path.parent} does not exist; make it, or name another file"
            )
        if self.path.is_dir():
            raise CacheError(f"cache {self.path} is a directory; name another file")
        self._reading, self._writing = threading.RLock(), threading.RLock()
        self._reader: sqlite3.Connection | None = None
        self._write_connection: sqlite3.Connection | None = None
        self._broken: Exception | None = None
        self._begin()
        try:
            self._reader = connect(self.path, prove=True)
            self._file = _identity(self.path)
        except (sqlite3.Error, OSError) as error:
            raise CacheError(f"cache {self.path}: {error}; name another file") from error
        _open_caches.add(self)

    def _begin(self) -> None:
        self._unwritten: dict[bytes, Row] = {}
        self._writer = _new_writer()
        self._gathering = False

    def get(self, key: bytes) -> Reply | None:
        row = self._unwritten.get(key)  # first: a row leaves it only once it is in the file
        if row is not None or self._broken is not None:
            return row[0] if row is not None else None
        try:
            with self._reading:
                self._reader = self._reader or connect(self.path)
                found = self._reader.execute("SELECT text, usage FROM replies WHERE key = ?", (key,)).fetchone()
            reply = Reply(found[0], orjson.loads(found[1]) if found[1] else None) if found else None
            return reply if is_reply(reply) else None
        except (sqlite3.Error, OSError, ValueError) as error:
            self._step_aside(error)
            return None

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        if self._broken is not None:
            return
        usage = orjson.dumps(reply.usage).decode() if reply.usage else None
        with self._reading:  # judges in several threads may share a cache, and their rows one commit
            self._unwritten[key] = (reply, usage, time.time(), material)
            if not self._gathering:
                with contextlib.suppress(RuntimeError):  # the interpreter exits: no thread begins, and close() writes
                    self._writer.submit(self._write, _GATHER_SECONDS)
                    self._gathering = True

    def flush(self) -> None:
        """Every row is on disk, or a warning says how many are not."""
        with self._reading:
            writer, self._writer = self._writer, _new_writer()
            self._gathering = False
        writer.shutdown()
        self._write()

    def close(self) -> None:
        self.flush()
        self._broken = self._broken or ValueError("it is closed")  # whatever comes later starts no thread
        self._let_go()
        _open_caches.discard(self)

    def _let_go(self) -> None:
        with self._reading, self._writing:
            for connection in (self._reader, self._write_connection):
                if connection is not None:
                    connection.close()
            self._reader = self._write_connection = None

    def _write(self, gather_seconds: float = 0.0) -> None:
        time.sleep(gather_seconds)
        with self._reading:
            rows, self._gathering = self._unwritten.copy(), False
        try:
            if self._broken is None:
                if _identity(self.path) != self._file:  # what is written now would go where nobody finds it
                    raise OSError("the file was deleted or replaced while it was in use")
                if rows:
                    insist(partial(self._commit, rows))
        except (sqlite3.Error, OSError, ValueError) as error:
            self._step_aside(error)
        with self._reading:
            for key, row in rows.items():
                if self._unwritten.get(key) is row:  # no later one has taken its place
                    del self._unwritten[key]

    def _commit(self, rows: dict[bytes, Row]) -> None:
        with self._writing:
            connection = self._write_connection = self._write_connection or connect(self.path)
            with connection:  # commits, or rolls back: a lock left behind would stop every other process
                connection.execute("BEGIN IMMEDIATE")
                replies = [(key, reply.text, usage, stored_at) for key, (reply, usage, stored_at, _) in rows.items()]
                connection.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", replies)
                materials = [(key, material) for key, (*_, material) in rows.items()]
                connection.executemany("INSERT OR REPLACE INTO materials VALUES (?, ?)", materials)

    def _step_aside(self, error: Exception) -> None:
        with self._reading:  # the reader and the writer may notice at the same moment
            if self._broken is None:
                self._broken = error
                say(
                    logging.WARNING,
                    "cache %s: %s; judging goes on without it: %d replies are not on disk, and new ones are not kept",
                    self.path, error, len(self._unwritten),
                )  # fmt: skip


_open_caches: weakref.WeakSet[SqliteCache] = weakref.WeakSet()
_held = contextlib.ExitStack()


def _hold_caches() -> None:
    """Before a fork: nobody is at work on a file, and no connection to it is open."""
    for cache in list(_open_caches):
        _held.enter_context(cache._reading)
        _held.enter_context(cache._writing)
        cache._let_go()


def _release_caches() -> None:
    _held.pop_all().close()  # all at once: another thread that forks may hold them next


def _release_caches_in_child() -> None:
    for cache in list(_open_caches):
        cache._begin()  # the rows that were waiting are the parent's to write
    _release_caches()


at_fork(before=_hold_caches, after_in_parent=_release_caches, after_in_child=_release_caches_in_child)


def _identity(path: Path) -> tuple[int, int] | None:
    """Of the file that stands there now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _new_writer() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="rewardcore-cache")  # which begins with its first row

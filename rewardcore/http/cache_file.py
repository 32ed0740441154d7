"""A cache file: its tables, how it is opened, and how processes take turns at it.

For SqliteCache, which judges use, and for those who look into it (`cache_contents`, `cache_prune`). It knows no
replies.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..failures import CacheError

T = TypeVar("T")
_APPLICATION_ID = 0x52574443  # "RWDC"
_VERSION = 1
_INCREMENTAL = 2
#: What went into a key stands apart, for people: it is ten times a reply's size, and look-ups want small rows.
_SCHEMA = (
    "CREATE TABLE replies (key BLOB PRIMARY KEY, text TEXT NOT NULL, usage TEXT, stored_at REAL NOT NULL) "
    "WITHOUT ROWID",
    "CREATE TABLE materials (key BLOB PRIMARY KEY, material BLOB NOT NULL)",
)
#: How long another process may keep the file to itself; asked again and again, so that a fork need not wait for it.
BUSY_SECONDS = 30.0
_TRY_SECONDS = 0.2


def connect(path: Path, *, prove: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_TRY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        insist(partial(_prepare, connection, prove))
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """For people who look into a file: makes none, and changes nothing in it. What goes wrong is a CacheError."""
    with explained(path):
        if not path.exists():
            raise CacheError(f"cache {path} does not exist; give the file that was named as cache=")
        if path.is_dir():
            raise CacheError(f"cache {path} is a directory; give the file that was named as cache=")
        mode = "mode=rw"  # whoever may only read leaves an empty write-ahead log behind
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
        address = f"{path.absolute().as_uri()}?{mode}"
        connection = sqlite3.connect(address, timeout=_TRY_SECONDS, isolation_level=None, uri=True)
        with contextlib.closing(connection):
            connection.execute("PRAGMA query_only = ON")
            if check(connection):
                raise CacheError(f"cache {path} is empty: no judge has used it yet")
            yield connection


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What SQLite says, as a sentence that names the file and what to do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if "locked" in str(error) or "busy" in str(error):
            raise CacheError(f"cache {path} is kept locked by another process; try again when that is done") from error
        if "readonly" in str(error):
            raise CacheError(f"cache {path} cannot be written; check who may write to it and its directory") from error
        is_operation = isinstance(error, sqlite3.OperationalError | OSError)  # a full disk; else it is not our file
        hint = "" if is_operation else "; give the file that was named as cache="
        raise CacheError(f"cache {path}: {error}{hint}") from error


def _prepare(connection: sqlite3.Connection, prove: bool) -> None:
    is_new = check(connection)  # before anything is changed: the file may be another program's
    prove |= is_new
    if is_new:  # before its first page is written: then it can be made smaller bit by bit, while judges use it
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    if prove:  # that it can be written
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if check(connection):
                for table in _SCHEMA:
                    connection.execute(table)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")


def insist(work: Callable[[], T], seconds: float = BUSY_SECONDS) -> T:
    """Processes take turns: turning a new file to WAL ignores SQLite's own time-out, and in it a fork would wait."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            is_busy = "locked" in str(error) or "busy" in str(error)
            if not is_busy or time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def check(connection: sqlite3.Connection) -> bool:
    """True for a new, empty file; raises where the file is not ours."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (identity,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (vacuum,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if not tables and not identity:
        return True
    if identity != _APPLICATION_ID:
        raise sqlite3.DatabaseError("this is the database of another program")
    if (version, vacuum) != (_VERSION, _INCREMENTAL):
        raise sqlite3.DatabaseError(
            "it was written by another version of rewardcore; delete it if its replies can be paid again"
        )
    return False

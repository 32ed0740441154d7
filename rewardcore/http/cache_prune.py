"""Making a cache file smaller, while judges go on using it.

Rows are deleted and pages given back in short transactions with pauses between them, so that no judge waits for long.
Whenever it is broken off, nothing is half done: a run that goes on deletes what is left.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..progress import Tell
from .cache_contents import ROWS_TOLD, count, materials, origin, replies
from .cache_file import connect, explained, insist, reading

#: How long a judge may keep the file locked before a person is told; a judge's own commits take milliseconds.
_PATIENCE_SECONDS = 10.0
_ROWS_DELETED = _PAGES_FREED = 500
_STEPS_TOLD = 100_000  # of SQLite's own machine, some milliseconds

#: A reply as it was seen: its key, and when it was stored.
Seen = tuple[bytes, float]


class Pruned(NamedTuple):
    """How many replies there were, and how many of them went."""

    replies: int
    deleted: int


def prune(
    path: Path,
    tell: Tell,
    *,
    older_than: float | None = None,
    keep_newest: int | None = None,
    model: str | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Delete what was stored more than so many seconds ago, or all but the newest, or what one model said.

    A reply that a judge renews meanwhile stays. The room stays with the file, for new replies, until it is shrunk.
    """
    with reading(path) as connection:
        total = count(connection)
        if model is not None:
            chosen = _said_by(connection, model)
        elif older_than is not None:
            chosen = _older(connection, (time.time() - older_than, b""))
        else:
            chosen = _older(connection, _oldest_to_keep(connection, keep_newest or 0, tell))
        if dry_run:
            return Pruned(total, sum(map(len, _told(chosen, tell, total))))
        with closing(connect(path)) as writer:
            return Pruned(
                total, sum(_politely(partial(_delete, writer, chunk)) for chunk in _told(chosen, tell, total))
            )


def shrink(path: Path, tell: Tell) -> None:
    """Give unused pages back to the disk, some at a time."""
    with explained(path), closing(connect(path)) as connection:
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        left, before = free, free + 1
        while 0 < left < before:  # a judge may take or leave pages meanwhile
            left, before = _politely(partial(_free_pages, connection)), left
            tell(max(0, free - left), free, "")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# What is chosen.


def _said_by(connection: sqlite3.Connection, model: str) -> Iterator[tuple[Seen, bool]]:
    for key, material in materials(connection):
        is_chosen = origin(material)[0] == model
        row = (
            connection.execute("SELECT stored_at FROM replies WHERE key = ?", (key,)).fetchone() if is_chosen else None
        )
        yield (key, row[0] if row else 0.0), row is not None


def _older(connection: sqlite3.Connection, than: tuple[float, bytes] | None) -> Iterator[tuple[Seen, bool]]:
    for key, stored_at in replies(connection):
        yield (key, stored_at), than is not None and (stored_at, key) < than


def _told(chosen: Iterator[tuple[Seen, bool]], tell: Tell, total: int) -> Iterator[list[Seen]]:
    """What was chosen, in lists of what one transaction deletes."""
    chunk: list[Seen] = []
    found = 0
    for read, (seen, is_chosen) in enumerate(chosen, 1):
        if is_chosen:
            chunk.append(seen)
            found += 1
        if read % ROWS_TOLD == 0:
            tell(read, max(read, total), f"{found} to delete")
        if len(chunk) == _ROWS_DELETED:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _oldest_to_keep(connection: sqlite3.Connection, newest: int, tell: Tell) -> tuple[float, bytes] | None:
    """None where there are not so many."""
    if newest == 0:
        return float("inf"), b""
    statement = "SELECT stored_at, key FROM replies ORDER BY stored_at DESC, key DESC LIMIT 1 OFFSET ?"
    with _telling(connection, tell):
        offset = min(newest, 2**63) - 1  # more than SQLite can count are more than there are
        found: tuple[float, bytes] | None = connection.execute(statement, (offset,)).fetchone()
    return found


@contextmanager
def _telling(connection: sqlite3.Connection, tell: Tell) -> Iterator[None]:
    """While one statement takes long. Ctrl-C ends the statement, too."""

    def handler() -> None:
        tell(0, None, "looking for the newest")

    connection.set_progress_handler(handler, _STEPS_TOLD)
    try:
        yield
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise KeyboardInterrupt from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


# What is written.


def _politely(work: Callable[[], int]) -> int:
    """Insist on the file for a moment, and then leave it to the judges for as long as it was kept from them."""
    began = time.monotonic()
    result = insist(work, _PATIENCE_SECONDS)
    time.sleep(min(0.1, time.monotonic() - began))
    return result


def _delete(connection: sqlite3.Connection, chunk: list[Seen]) -> int:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        deleted = connection.executemany("DELETE FROM replies WHERE key = ? AND stored_at = ?", chunk).rowcount
        unread = "DELETE FROM materials WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM replies WHERE key = ?1)"
        connection.executemany(unread, [(key,) for key, _ in chunk])
    return deleted


def _free_pages(connection: sqlite3.Connection) -> int:
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES_FREED})").fetchall()
    (left,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(left)

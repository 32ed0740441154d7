"""What a cache file holds, for people who look into it while judges go on using it.

Whatever its size, it is read row by row, in many short transactions: a long one would keep the write-ahead log from
being emptied. Deleting is `cache_prune`'s.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ..progress import Tell
from .cache_file import reading

_ROWS_READ = 2000
ROWS_TOLD = 1000  # between two words to whoever watches
_UNREADABLE = "(unreadable)"


class Found(NamedTuple):
    key: str
    text: str
    material: bytes
    stored_at: float


def find(path: Path, key_prefix: str = "", newest: int = 20) -> list[Found]:
    """The newest replies whose key, in hexadecimal, begins so."""
    low, high = (bytes.fromhex(key_prefix.ljust(64, digit)) for digit in "0f")
    keys = "SELECT key, text, stored_at FROM replies WHERE key BETWEEN ? AND ? ORDER BY stored_at DESC LIMIT ?"
    statement = (
        f"SELECT key, text, material, stored_at FROM ({keys}) JOIN materials USING (key) ORDER BY stored_at DESC"
    )
    with reading(path) as connection:
        return [Found(key.hex(), *rest) for key, *rest in connection.execute(statement, (low, high, newest))]


@dataclass(frozen=True)
class CacheStats:
    """What a file holds. `by` counts its replies by model and endpoint (or the identity that stands for one)."""

    replies: int
    bytes_on_disk: int
    oldest: float | None
    newest: float | None
    prompt_tokens: int
    completion_tokens: int
    repeats: int  # replies that are a further draw of the same request
    by: Counter[tuple[str, str]]


def look_into(path: Path, tell: Tell) -> CacheStats:
    with reading(path) as connection:
        total = count(connection)
        counted, oldest, newest = 0, None, None
        tokens: Counter[str] = Counter()
        for _, stored_at, usage in replies(connection, "usage"):
            counted += 1
            oldest = stored_at if oldest is None else min(oldest, stored_at)
            newest = stored_at if newest is None else max(newest, stored_at)
            tokens.update(_tokens(usage))
            if counted % ROWS_TOLD == 0:
                tell(counted, 2 * total, "")
        by: Counter[tuple[str, str]] = Counter()
        repeats = 0
        for read, (_, material) in enumerate(materials(connection), counted + 1):
            model, endpoint, repeat = origin(material)
            by[model, endpoint] += 1
            repeats += repeat > 0
            if read % ROWS_TOLD == 0:
                tell(read, max(read, 2 * total), "")
    paid = tokens["prompt_tokens"], tokens["completion_tokens"]
    return CacheStats(counted, bytes_on_disk(path), oldest, newest, *paid, repeats, by)


def bytes_on_disk(path: Path) -> int:
    files = [path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))]
    return sum(file.stat().st_size for file in files if file.exists())


def count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM materials").fetchone()  # by its index: the replies are larger
    return int(count)


def replies(connection: sqlite3.Connection, *columns: str) -> Iterator[tuple[Any, ...]]:
    """(key, stored_at, and these columns) of every reply."""
    statement = f"SELECT {', '.join(('key', 'stored_at', *columns))} FROM replies WHERE key > ? ORDER BY key LIMIT ?"
    row: tuple[Any, ...] | None = (b"",)
    while row is not None:
        last, row = row[0], None
        for row in connection.execute(statement, (last, _ROWS_READ)):
            yield row


def materials(connection: sqlite3.Connection) -> Iterator[tuple[bytes, bytes]]:
    """(key, material) of every reply, in the order of the file; one at a time: there may be images in it."""
    statement = "SELECT rowid, key, material FROM materials WHERE rowid > ? ORDER BY rowid LIMIT ?"
    row: tuple[Any, ...] | None = (0,)
    while row is not None:
        last, row = row[0], None
        for row in connection.execute(statement, (last, _ROWS_READ)):
            yield row[1:]


def origin(material: bytes) -> tuple[str, str, int]:
    """Model, endpoint and repeat index, as they went into the key."""
    try:
        document = orjson.loads(material)
        endpoint = document.get("identity") or document.get("base_url")
        return str(document["request"]["model"]), str(endpoint), int(document["repeat"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return _UNREADABLE, _UNREADABLE, 0


def _tokens(usage: str | None) -> dict[str, int]:
    try:
        counts = orjson.loads(usage or "{}")
        return {name: int(counts.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")}
    except (ValueError, TypeError, AttributeError):
        return {}

"""Rows of a data file, or of a hub's data set, one after the other: never all of them in memory.

It says what each row holds and where it stands, and what is wrong with one that cannot be read; what the fields mean is
the caller's to say. A row's index is its place among the rows, from 0, and is what a resumed run knows it by.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..failures import ConfigurationError, needs_extra
from . import json_lines

Skip = Callable[[int], bool] | Container[int]

_LINES, _PARQUET = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), ".parquet"
_ENDINGS = f"a file that ends in {', '.join(_LINES)} or {_PARQUET}"
#: A name on a hub; what ends like a file is taken for one that is missing.
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_LOOKS_LIKE_A_FILE = re.compile(r".*\.(json|csv|tsv|txt|arrow|feather|gz|zip|zst|xz|bz2|xlsx|db|sqlite|pkl|pt)")
#: What of a file's head and of its tail goes into its fingerprint.
_FINGERPRINT_BYTES = 65536
#: Rows that are made into Python objects at once: images are large.
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Row:
    index: int
    place: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read; it prints as a sentence."""

    index: int
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place} {self.reason}"


class Rows(ABC):
    """`total` is None where only reading would tell, and `path` where there is no file. The fingerprint says whether a
    resumed run reads the same data.

    It is cheap rather than complete: of a file, its size and a hash of its head and tail; of a data set, its name, its
    size, its columns and its first and last row. A change in the middle that keeps the size goes unnoticed.
    """

    name: str
    path: Path | None = None
    total: int | None
    fingerprint: str

    @abstractmethod
    def read(self, skip: Skip = ()) -> Iterator[Row | BadRow]:
        """In order; those that `skip` holds, or says True of, are left out, and are not parsed."""


def open_rows(source: str, split: str = "train") -> Rows:
    """A file of JSON lines or a Parquet file by its ending; else the name of a data set on a hub, and its split."""
    if not source.strip():
        raise ConfigurationError(f"the data has no name; give {_ENDINGS}")
    path = Path(os.path.expanduser(source))
    if path.is_dir():
        raise ConfigurationError(f"{source} is a directory; give {_ENDINGS}")
    is_lines, is_parquet = path.name.lower().endswith(_LINES), path.name.lower().endswith(_PARQUET)
    if is_lines or is_parquet:
        if not path.exists():
            raise ConfigurationError(f"{source} does not exist; give {_ENDINGS}")
        return JsonLines(path) if is_lines else Parquet(path)
    if path.exists() or _LOOKS_LIKE_A_FILE.fullmatch(path.name.lower()):
        raise ConfigurationError(f"{source} has an ending that is not known; give {_ENDINGS}")
    if not _HUB_NAME.fullmatch(source):
        raise ConfigurationError(f"{source} does not exist; give {_ENDINGS}, or the name of a data set, owner/name")
    return HubData(source, split)


class JsonLines(Rows):
    """A JSON object a line, compressed or not. A blank line is no row."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.name, self.path, self.total = path.name, path, None
        self.fingerprint = _fingerprint(path)

    def read(self, skip: Skip = ()) -> Iterator[Row | BadRow]:
        is_skipped, index, number = _says(skip), -1, 0
        is_compressed = self.path.name.lower().endswith(".gz")
        with gzip.open(self.path) if is_compressed else self.path.open("rb") as lines:
            try:
                for number, line in enumerate(lines, start=1):
                    if line.isspace():
                        continue
                    index += 1
                    if is_skipped(index):
                        continue
                    place = f"line {number} of {self.name}"
                    try:
                        yield Row(index, place, json_lines.parse(line.removeprefix(b"\xef\xbb\xbf")))
                    except ValueError as error:
                        yield BadRow(index, place, str(error))
            except (OSError, EOFError, zlib.error) as error:
                if not is_skipped(index + 1):
                    yield BadRow(index + 1, f"line {number + 1} of {self.name}", _not_read(error))


class Parquet(Rows):
    def __init__(self, path: Path) -> None:
        with needs_extra("data", f"{path.name}, a Parquet file,"):
            import pyarrow
            from pyarrow import parquet
        self._errors: tuple[type[Exception], ...] = (pyarrow.ArrowException, OSError)
        self.name, self.path = path.name, path
        try:
            self._file = parquet.ParquetFile(path, buffer_size=1 << 20)
        except self._errors as error:
            raise ConfigurationError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None
        self.total = self._file.metadata.num_rows
        self.fingerprint = _fingerprint(path)

    def read(self, skip: Skip = ()) -> Iterator[Row | BadRow]:
        is_skipped, index = _says(skip), 0
        for group in range(self._file.num_row_groups):
            after = index + self._file.metadata.row_group(group).num_rows
            if all(map(is_skipped, range(index, after))):
                index = after
                continue
            try:
                for batch in self._file.iter_batches(_BATCH, row_groups=[group]):
                    wanted = [place for place in range(len(batch)) if not is_skipped(index + place)]
                    for place, fields in zip(wanted, batch.take(wanted).to_pylist(), strict=True):
                        yield _checked(index + place, self.name, fields)
                    index += len(batch)
            except self._errors as error:
                if not is_skipped(index):
                    yield BadRow(index, f"row {index + 1} of {self.name}", _not_read(error))
                return


class HubData(Rows):
    """A data set of a hub: of the one that HF_ENDPOINT names, else of the usual one; kept in the hub's own cache."""

    def __init__(self, name: str, split: str) -> None:
        with needs_extra("data", f"{name}, a hub's data set,"):
            import datasets
        try:
            self._data = datasets.load_dataset(name, split=split)
        except Exception as error:  # a hub, a network and a script: their errors have nothing in common
            raise ConfigurationError(
                f"data set {name!r}, split {split!r}, cannot be loaded: {_first_line(error)} (give {_ENDINGS}, or a"
                " data set's name, owner/name; HF_ENDPOINT names another hub)"
            ) from None
        self.name, self.total = name, len(self._data)
        # As they are stored: an image is its bytes or its path, and nobody decodes what is only sent on.
        self._stored = self._data.with_format("arrow")
        seen = [self._stored[place : place + 1].to_pylist() for place in (0, self.total - 1) if self.total]
        self.fingerprint = _digest(f"{name} {split} {self.total} {self._data.features} {seen}".encode())

    def read(self, skip: Skip = ()) -> Iterator[Row | BadRow]:
        is_skipped = _says(skip)
        for index in range(self.total or 0):
            if not is_skipped(index):
                yield self._row(index)

    def _row(self, index: int) -> Row | BadRow:
        try:
            (fields,) = self._stored[index : index + 1].to_pylist()
            return _checked(index, self.name, fields)
        except Exception as error:  # whatever a broken file of the data set raises
            return BadRow(index, f"row {index + 1} of {self.name}", f"cannot be read: {_first_line(error)}")


def _checked(index: int, name: str, fields: dict[str, Any]) -> Row | BadRow:
    """JSON has no such numbers, so a result could not hold them."""
    place = f"row {index + 1} of {name}"
    for field, value in fields.items():
        if json_lines.any_float(value, lambda number: not math.isfinite(number)):
            return BadRow(index, place, f"holds NaN or an infinity in {field!r}; give null, or a number")
    return Row(index, place, fields)


def _says(skip: Skip) -> Callable[[int], bool]:
    return skip if callable(skip) else skip.__contains__


def _fingerprint(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(_FINGERPRINT_BYTES)
            file.seek(max(0, size - _FINGERPRINT_BYTES))
            return f"{size} bytes, {_digest(head + file.read(_FINGERPRINT_BYTES))}"
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _not_read(error: BaseException) -> str:
    """A file that breaks off is one bad row, however many it held."""
    return f"cannot be read: {_first_line(error)}; the file is cut off or damaged here, and the rows after it are lost"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

"""What is finished, row by row, kept at once and found again after a kill at any moment, for a million rows.

`PATH` has a JSON document a line, in the order in which rows finish. `PATH.index` has a record of 16 bytes for each of
them (the row and where its line ends), so that a resumed run reads those and not the lines. The lines are the truth: a
line is whole when it has its newline, and an index that does not fit them is made anew. `PATH.configuration` says what
they are results of. Not for what is written once, in the end: that is atomic.py's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import orjson

from ..failures import ConfigurationError, RewardcoreError
from . import json_lines
from .atomic import explained, put_aside, write_atomically

_RECORD = struct.Struct("<QQ")
#: In a record's row: the document is no final one, and the row is not finished.
_UNFINISHED = 1 << 63
#: Rows are counted from 0, and each takes a byte of memory.
_MOST_ROWS = 1 << 30
#: How many lines are looked at to see whether an index fits.
_LOOKS = 64
_READ_BYTES = 1 << 20


class Journal:
    """`index in journal` says whether a row is finished, `len(journal)` how many are.

    A run of another configuration, and a second process, are refused. With `resume=False` what is there is kept under
    another name, and the journal begins anew. Usable from any thread.
    """

    def __init__(self, path: str | os.PathLike[str], configuration: Mapping[str, Any], resume: bool = True) -> None:
        self.path = Path(path)
        self._index_path = self.path.with_name(self.path.name + ".index")
        self._configuration_path = self.path.with_name(self.path.name + ".configuration")
        self._writing = threading.Lock()
        self._finished = bytearray()
        self._end = 0  # of the last line that has its record
        with contextlib.ExitStack() as opened, explained(self.path):
            if not resume and self.path.exists():
                with contextlib.closing(_open_alone(self.path)):  # nobody who is at work on it is robbed
                    put_aside(self.path, self._index_path, self._configuration_path)
            self._lines = opened.enter_context(contextlib.closing(_open_alone(self.path)))
            self._check_configuration(json_lines.parse(json_lines.line_of(configuration)))
            self._index = opened.enter_context(contextlib.closing(_File(self._index_path)))
            self._recover()
            self._opened = opened.pop_all()

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index < len(self._finished) and bool(self._finished[index])

    def __len__(self) -> int:
        return self._finished.count(1)

    @property
    def is_empty(self) -> bool:
        """Not even a document that is not final is in it."""
        return not self._end

    def append(self, index: int, document: Mapping[str, Any], final: bool = True) -> None:
        """Written when it returns. A document that is not final is kept as well, but its row is not finished by it.

        The latest document of a row counts. NaN and whatever else JSON cannot carry raise before anything is written.
        """
        if not 0 <= index < _MOST_ROWS or document.get("index", index) != index or "final" in document:
            raise ValueError(f"row {index} cannot be kept: its index is out of range, or its document names another")
        mark = {} if final else {"final": False}
        line = json_lines.line_of({"index": index, **mark, **document})
        with self._writing, explained(self.path):
            if self._lines.size() != self._end:
                self._catch_up()  # an interrupt came between a line and its record
            records = self._index.size()
            try:
                self._lines.append(line)
                self._index.append(_record(index, final, self._end + len(line)))
            except OSError:  # a full disk, most likely: there must be no half of anything
                self._lines.cut(self._end)
                self._index.cut(records)
                raise
            self._note(index, final)
            self._end += len(line)  # last: until then, an interrupt leaves something to catch up with

    def in_order(self) -> Iterator[bytes]:
        """The latest line of each row, in the order of the rows, by offset: sixteen bytes of memory a row."""
        with self._writing:
            rows, ends = self._records()
        latest = array("Q", bytes(8 * len(self._finished)))  # each row's last record, counted from 1
        for number, row in enumerate(rows, start=1):
            latest[row & ~_UNFINISHED] = number
        del rows
        for number in latest:
            if number:
                start = ends[number - 2] if number > 1 else 0
                yield self._lines.read(start, ends[number - 1])

    def close(self) -> None:
        self._opened.close()

    def remove(self) -> None:
        """It has served, and its files go; the lines before what says what they are."""
        with explained(self.path):
            for path in (self._index_path, self.path, self._configuration_path):
                path.unlink(missing_ok=True)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _note(self, index: int, final: bool) -> None:
        if index >= len(self._finished):
            self._finished.extend(bytes(index + 1 - len(self._finished)))
        self._finished[index] = final

    def _check_configuration(self, configuration: dict[str, Any]) -> None:
        try:
            before = json_lines.parse(self._configuration_path.read_bytes())
        except (FileNotFoundError, ValueError):
            before = None
        if before == configuration:
            return
        if self._lines.size():
            said = "of a run that nothing is known of"
            if before is not None:
                said = f"of another run: {differences(before, configuration)}"
            raise ConfigurationError(
                f"{self.path} holds results {said}; give another output, or --no-resume to begin anew (these are then"
                " kept under another name)"
            )
        with write_atomically(self._configuration_path) as file:
            file.write(json_lines.line_of(configuration))

    def _recover(self) -> None:
        """Take the index if it fits, and read whatever lines it does not know."""
        if not self._take_index():
            self._index.cut(0)
            self._finished, self._end = bytearray(), 0
        self._catch_up()

    def _take_index(self) -> bool:
        rows, ends = self._records()
        if not ends:
            return True
        # Each line has at least a byte, so an index that is in order stays within the file.
        is_in_order = ends[-1] <= self._lines.size() and all(map(int.__lt__, ends, ends[1:]))
        if not is_in_order or max(row & ~_UNFINISHED for row in rows) >= _MOST_ROWS:
            return False
        for number in {len(ends) - 1, *range(0, len(ends), max(1, len(ends) // _LOOKS))}:
            line = self._lines.read(ends[number - 1] if number else 0, ends[number])
            if _read(line) != (rows[number] & ~_UNFINISHED, rows[number] < _UNFINISHED):
                return False
        for row in rows:
            self._note(row & ~_UNFINISHED, row < _UNFINISHED)
        self._end = ends[-1]
        return True

    def _records(self) -> tuple[array[int], array[int]]:
        """Rows and ends; a half record is left out."""
        size = self._index.size() // _RECORD.size * _RECORD.size
        records = array("Q", self._index.read(0, size))
        return records[::2], records[1::2]

    def _catch_up(self) -> None:
        """Give every whole line past the last record its own, and cut off a half line and a half record at the end."""
        size = self._index.size() // _RECORD.size * _RECORD.size
        self._index.cut(size)
        recorded = _RECORD.unpack(self._index.read(size - _RECORD.size, size))[1] if size else 0
        records = bytearray()
        for line in self._lines.lines(self._end):
            if (found := _read(line)) is None:
                if line.endswith(b"\n"):
                    raise RewardcoreError(
                        f"{self.path} holds something at byte {self._end} that no run has written: {line[:40]!r}; give"
                        " another output, or --no-resume to begin anew"
                    )
                break  # its writer was killed in the middle of it
            self._end += len(line)
            self._note(*found)
            if self._end > recorded:
                records += _record(*found, self._end)
        self._lines.cut(self._end)
        self._index.append(records)


def _open_alone(path: Path) -> _File:
    """Locked until it is closed. Some network file systems cannot lock: there, nobody is kept out."""
    while True:
        file = _File(path)
        try:
            with contextlib.suppress(OSError):
                try:
                    fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ConfigurationError(
                        f"{path} is being written by another process; wait for it, or give another output"
                    ) from None
            if path.exists() and os.path.samestat(os.fstat(file.descriptor), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # whoever had it has just removed it, or put it aside


class _File:
    """A file without a buffer of ours: what was appended is written."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)

    def close(self) -> None:
        os.close(self.descriptor)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def cut(self, size: int) -> None:
        if self.size() != size:
            os.ftruncate(self.descriptor, size)

    def append(self, data: bytes | bytearray) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

    def read(self, start: int, end: int) -> bytes:
        pieces = []
        while start < end and (piece := os.pread(self.descriptor, end - start, start)):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def lines(self, start: int) -> Iterator[bytes]:
        """From there to the end, the last one with or without a newline."""
        rest = b""
        while piece := os.pread(self.descriptor, _READ_BYTES, start):
            start += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Each field that differs, with both values."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(f"{name} was {before.get(name)!r:.80} and is {now.get(name)!r:.80}" for name in names)


def _record(index: int, final: bool, end: int) -> bytes:
    return _RECORD.pack(index if final else index | _UNFINISHED, end)


def _read(line: bytes) -> tuple[int, bool] | None:
    """The row of a line, and whether its document is final; None if it is no whole line of ours."""
    if not line.endswith(b"\n"):
        return None
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    index = document.get("index") if isinstance(document, dict) else None
    return (index, document.get("final", True)) if type(index) is int and 0 <= index < _MOST_ROWS else None

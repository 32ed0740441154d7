"""What is finished, row by row, kept at once and found again after a kill at any moment, for a million rows.

`PATH` has a JSON document a line, in the order in which rows finish: a line is whole when it has its newline, and a
resumed run reads them all again, a few seconds for a million. `PATH.configuration` says what they are results of. In
memory are eight bytes a row: where its latest line begins. Not for what is written once, in the end: that is
atomic.py's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import orjson

from ..failures import ConfigurationError, RewardcoreError
from . import json_lines
from .atomic import explained, put_aside, write_atomically

#: Rows are counted from 0, and each takes eight bytes of memory.
_MOST_ROWS = 1 << 30
_READ_BYTES = 1 << 20


class Journal:
    """`index in journal` says whether a row is finished, `len(journal)` how many are.

    A run of another configuration, and a second process, are refused. With `resume=False` what is there is kept under
    another name, and the journal begins anew. Usable from any thread.
    """

    def __init__(self, path: str | os.PathLike[str], configuration: Mapping[str, Any], resume: bool = True) -> None:
        self.path = Path(path)
        self._configuration_path = self.path.with_name(self.path.name + ".configuration")
        self._writing = threading.Lock()
        #: By row: where its latest line begins, in bytes from 1; negative where that line is not final; 0 without one.
        self._places = array("q")
        self._end = 0  # of the last line that has its place
        with contextlib.ExitStack() as opened, explained(self.path):
            if not resume and self.path.exists():
                with contextlib.closing(_open_alone(self.path)):  # nobody who is at work on it is robbed
                    put_aside(self.path, self._configuration_path)
            self._lines = opened.enter_context(contextlib.closing(_open_alone(self.path)))
            self._check_configuration(json_lines.parse(json_lines.line_of(configuration)))
            self._catch_up()
            self._opened = opened.pop_all()

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index < len(self._places) and self._places[index] > 0

    def __len__(self) -> int:
        return sum(place > 0 for place in self._places)

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
                self._catch_up()  # an interrupt came between a line and its place
            try:
                self._lines.append(line)
            except OSError:  # a full disk, most likely: there must be no half of a line
                self._lines.cut(self._end)
                raise
            self._note(index, final, len(line))

    def in_order(self) -> Iterator[bytes]:
        """The latest line of each row, in the order of the rows."""
        with self.path.open("rb") as lines:
            for place in filter(None, self._places):
                lines.seek(abs(place) - 1)
                yield lines.readline()

    def close(self) -> None:
        self._opened.close()

    def remove(self) -> None:
        """It has served, and its files go; the lines before what says what they are."""
        with explained(self.path):
            for path in (self.path, self._configuration_path):
                path.unlink(missing_ok=True)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _note(self, index: int, final: bool, length: int) -> None:
        """The line at the end is this row's."""
        if index >= len(self._places):
            self._places.frombytes(bytes(8 * (index + 1 - len(self._places))))
        self._places[index] = self._end + 1 if final else -self._end - 1
        self._end += length  # last: until then, an interrupt leaves something to catch up with

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

    def _catch_up(self) -> None:
        """Note every whole line past the last that is known, and cut off a half line at the end."""
        for line in self._lines.lines(self._end):
            if (found := _read(line)) is not None:
                self._note(*found, len(line))
            elif line.endswith(b"\n"):
                raise RewardcoreError(
                    f"{self.path} holds something at byte {self._end} that no run has written: {line[:40]!r}; give"
                    " another output, or --no-resume to begin anew"
                )
        self._lines.cut(self._end)  # its writer was killed in the middle of it


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

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]

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

"""The journal: whatever was whole is found again, nothing half is taken, and nobody's work is lost."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import orjson
import pytest

from rewardcore.failures import ConfigurationError, RewardcoreError
from rewardcore.files import journal as journal_module
from rewardcore.files.atomic import write_atomically
from rewardcore.files.journal import Journal

CONFIGURATION = {"model": "judge", "temperature": 0.0, "rubric": None}
#: In the order in which they finish: row, and whether its document is final. Row 5 is tried twice.
DEEDS = [(2, True), (0, True), (5, False), (1, True), (9, False), (5, True), (4, True)]


def opened(path: Path, **changes: Any) -> Journal:
    return Journal(path, CONFIGURATION | changes)


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


def rows_of(journal: Journal) -> list[int]:
    return [orjson.loads(line)["index"] for line in journal.in_order()]


def document(row: int, attempt: int = 0) -> dict[str, object]:
    return {"said": f"zwölf\n{row} " * (row % 4), "attempt": attempt}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


@pytest.fixture
def whole(path: Path) -> bytes:
    """The lines of a small journal."""
    with opened(path) as journal:
        for attempt, (row, final) in enumerate(DEEDS):
            journal.append(row, document(row, attempt), final)
    return path.read_bytes()


def check(path: Path, lines: bytes) -> None:
    """Of these lines, whole or not, a journal knows exactly the whole ones, and goes on from there."""
    known = DEEDS[: lines.count(b"\n")]
    latest = dict(known)
    with opened(path) as journal:
        assert [row for row in range(12) if row in journal] == sorted(row for row, final in latest.items() if final)
        assert len(journal) == sum(latest.values())
        read = [orjson.loads(line) for line in journal.in_order()]
        assert [line["index"] for line in read] == sorted(latest)
        attempts = {row: attempt for attempt, (row, _) in enumerate(known)}
        assert [line["attempt"] for line in read] == [attempts[row] for row in sorted(latest)]
        journal.append(11, document(11))
        assert rows_of(journal) == [*sorted(latest), 11]
    with opened(path) as journal:
        assert rows_of(journal) == [*sorted(latest), 11]


def test_what_was_appended_is_found_again_in_the_order_of_the_rows(path: Path, whole: bytes) -> None:
    check(path, whole)
    assert files(path) == ["results.jsonl", "results.jsonl.configuration"]


def test_lines_cut_at_any_byte_lose_only_the_line_that_was_cut(path: Path, whole: bytes) -> None:
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        check(path, whole[:cut])


def test_a_line_longer_than_what_is_read_at_once_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_READ_BYTES", 5)
    with opened(path) as journal:
        journal.append(3, document(3))
        journal.append(0, document(0))
    with opened(path) as journal:
        assert rows_of(journal) == [0, 3]


def test_a_line_that_no_run_has_written_is_told_and_left_alone(path: Path, whole: bytes) -> None:
    damaged = whole + b"somebody's own notes\n"
    path.write_bytes(damaged)
    with pytest.raises(RewardcoreError, match=f"at byte {len(whole)} that no run has written: b\"somebody's"):
        opened(path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, "\ud800"])
def test_what_json_cannot_carry_raises_and_leaves_no_trace(path: Path, value: object) -> None:
    with opened(path) as journal:
        with pytest.raises((ValueError, TypeError)):
            journal.append(0, {"value": [value]})
        assert (path.stat().st_size, len(journal), 0 in journal) == (0, 0, False)


@pytest.mark.parametrize(("row", "given"), [(-1, {}), (1 << 40, {}), (3, {"index": 4}), (3, {"final": True})])
def test_a_document_that_names_another_row_is_a_bug_of_the_callers(path: Path, row: int, given: object) -> None:
    with opened(path) as journal, pytest.raises(ValueError, match=f"row {row} cannot be kept"):
        journal.append(row, given)  # type: ignore[arg-type]


# Whose run it is.


def test_a_run_of_another_configuration_is_refused_with_every_difference(path: Path, whole: bytes) -> None:
    with pytest.raises(ConfigurationError) as error:
        opened(path, model="other", temperature=1.0, seed=1)
    said = "model was 'judge' and is 'other', temperature was 0.0 and is 1.0, seed was None and is 1"
    assert str(error.value) == (
        f"{path} holds results of another run: {said}; give another output, or --no-resume to begin anew (these are"
        " then kept under another name)"
    )
    check(path, whole)


def test_a_journal_without_results_is_anybodys(path: Path) -> None:
    opened(path).close()
    with opened(path, model="other") as journal:
        journal.append(0, {})
    with pytest.raises(ConfigurationError, match="model was 'other' and is 'judge'"):
        opened(path)


@pytest.mark.parametrize("damage", [Path.unlink, lambda configuration: configuration.write_bytes(b'{"model": "ju')])
def test_results_whose_configuration_is_lost_are_refused(
    path: Path, whole: bytes, damage: Callable[[Path], object]
) -> None:
    damage(path.with_name("results.jsonl.configuration"))
    with pytest.raises(ConfigurationError, match="of a run that nothing is known of; give another output"):
        opened(path)


def test_beginning_anew_keeps_what_was_there_under_another_name(
    path: Path, whole: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        with Journal(path, {"model": str(number)}, resume=False) as journal:
            assert len(journal) == 0
            journal.append(7, {})
    kept = path.with_name("results.jsonl.old-1")
    assert kept.read_bytes() == whole
    assert f"what was in {path} is kept as results.jsonl.old-1" in caplog.text
    with Journal(kept, CONFIGURATION) as journal:
        assert rows_of(journal) == [0, 1, 2, 4, 5, 9]
    with Journal(path.with_name("results.jsonl.old-2"), {"model": "1"}) as journal:
        assert rows_of(journal) == [7]


def test_removing_it_leaves_no_file(path: Path, whole: bytes) -> None:
    with opened(path) as journal:
        journal.remove()
    assert files(path) == []


# More than one.

WRITER = """
import sys
from rewardcore.files.journal import Journal

with Journal(sys.argv[1], {"model": "judge", "temperature": 0.0, "rubric": None}) as journal:
    print("open", len(journal), flush=True)
    for row in range(10**9):
        if row not in journal:
            journal.append(row, {"said": "so and so " * (row % 50)})
            if row == int(sys.argv[2]):
                print("there", flush=True)
"""


@contextlib.contextmanager
def writer(path: Path, row: int) -> Iterator[subprocess.Popen[str]]:
    """A process that writes and writes, and says when this row is in."""
    command = [sys.executable, "-c", WRITER, str(path), str(row)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("resume", [True, False])
def test_a_second_process_is_refused_and_the_first_is_not_disturbed(path: Path, resume: bool) -> None:
    with writer(path, 500) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open 0\n"
        with pytest.raises(ConfigurationError, match="is being written by another process; wait for it, or give"):
            Journal(path, CONFIGURATION, resume)
        assert process.stdout.readline() == "there\n"


def test_a_writer_that_is_killed_at_any_moment_loses_no_line_and_goes_on(path: Path) -> None:
    """Ten lives: each is killed in the middle of its work, and the next one finds every row of those before."""
    dice, known = random.Random(0), 0
    for _ in range(10):
        with writer(path, known + dice.randrange(1, 400)) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline().removeprefix("open ")) >= known
            assert process.stdout.readline() == "there\n"
            process.send_signal(signal.SIGKILL)
            process.wait()
        with opened(path) as journal:
            known = len(journal)
            assert rows_of(journal) == list(range(known))


def test_threads_may_append_together(path: Path) -> None:
    with opened(path) as journal, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda row: journal.append(row, document(row)), range(400)))
        assert rows_of(journal) == list(range(400))
        assert len(journal) == 400


# What goes wrong in the middle.


@pytest.mark.parametrize("nth", range(6))
def test_a_full_disk_is_one_sentence_and_leaves_no_half_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The disk has room for a few bytes of the nth write, and none after."""
    write, writes = os.write, itertools.count()

    def full(descriptor: int, data: Any) -> int:
        number = next(writes)
        if number < nth:
            return write(descriptor, data)
        if number == nth:
            return write(descriptor, data[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with opened(path) as journal:
        monkeypatch.setattr(journal_module.os, "write", full)
        for row in range(nth):
            journal.append(row, document(row))
        row = nth
        with pytest.raises(RewardcoreError, match=r"results.jsonl cannot be written: No space left on device"):
            journal.append(row, document(row))
        monkeypatch.undo()
        assert rows_of(journal) == list(range(row)) == [each for each in range(row + 1) if each in journal]
        journal.append(row, document(row))
        assert rows_of(journal) == list(range(row + 1))
    with opened(path) as journal:
        assert rows_of(journal) == list(range(row + 1))


@pytest.mark.parametrize("nth", range(6))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupt_at_any_write_loses_no_line_and_doubles_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, after: bool
) -> None:
    """Ctrl-C around the nth write; and whoever goes on appending all the same may."""
    write, writes = os.write, itertools.count()

    def interrupted(descriptor: int, data: Any) -> int:
        if (number := next(writes)) == nth and not after:
            raise KeyboardInterrupt
        written = write(descriptor, data)
        if number == nth:
            raise KeyboardInterrupt
        return written

    with opened(path) as journal:
        monkeypatch.setattr(journal_module.os, "write", interrupted)
        for row in range(8):
            with contextlib.suppress(KeyboardInterrupt):
                journal.append(row, document(row))
        known = rows_of(journal)
        assert set(range(8)) - set(known) <= {nth}
        assert known == [row for row in range(8) if row in journal]
    with opened(path) as journal:
        assert rows_of(journal) == known


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RewardcoreError, match=r"results.jsonl cannot be written: No such file or directory"):
        opened(tmp_path / "missing" / "results.jsonl")
    (tmp_path / "results.jsonl").mkdir()
    with pytest.raises(RewardcoreError, match=r"results.jsonl cannot be written: Is a directory"):
        opened(tmp_path / "results.jsonl")


def give_up_halfway(file: IO[bytes]) -> None:
    file.write(b"half")
    raise ZeroDivisionError


def test_a_file_that_is_written_atomically_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), write_atomically(path) as file:
        give_up_halfway(file)
    assert (path.read_bytes(), files(path)) == (b"before", ["out.jsonl"])
    with write_atomically(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert (path.read_bytes(), files(path)) == (b"after", ["out.jsonl"])


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "out.jsonl"
    with pytest.raises(RewardcoreError, match=r"out.jsonl cannot be written: No space left"), write_atomically(path):
        pass
    assert files(path) == []

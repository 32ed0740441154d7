"""A tidy table: rows for a plot, and the same rows for a reader, with the records that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.records import Record

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """`columns` are those that a reader is shown, with their headings; a plot may use others of the rows."""

    columns: dict[str, str]
    rows: list[Row]
    records: Sequence[Record] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.rows)


def provenance(records: Sequence[Record]) -> str:
    """Of which commit, and when; where there are several, how many, and the newest."""
    stated = sorted((each.time, each.commit) for each in records if each.time)
    if not stated:
        return ""
    first, last = stated[0][0][:10], stated[-1][0][:10]
    days = first if first == last else f"{first} to {last}"
    commits, newest = len({commit for _, commit in stated}), short(stated[-1][1])
    return f"commit {newest}, {days}" if commits == 1 else f"{commits} commits, {days}; the newest is {newest}"


def short(commit: str) -> str:
    """As people name it; + stays: the tree had changes."""
    return commit[:7] + ("+" if commit.endswith("+") and len(commit) > 7 else "")


def told(values: Sequence[Any]) -> list[str]:
    """The cells of a column: enough digits to compare them, and the same of each."""
    numbers = [abs(value) for value in values if isinstance(value, float)]
    largest = max(numbers, default=0.0)
    is_whole = all(number.is_integer() for number in numbers)
    digits = 0 if is_whole else next((digits for digits, least in ((1, 10.0), (2, 1.0)) if largest >= least), 3)
    return [_cell(value, digits) for value in values]


def _cell(value: Any, digits: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.{digits}f}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)

"""How to make every figure again, and on what it was measured."""

from __future__ import annotations

from bench.report import commands
from bench.report.newest import Newest
from bench.report.page import Section
from bench.report.sources import Sources
from bench.report.table import Row, Table, short

_MOST_MACHINES = 4


def commands_and_machine(newest: Newest, sources: Sources) -> Section:
    rows: list[Row] = [{"command": command, "about": about} for command, about in commands.ABOUT.items()]
    tables = [("Commands", Table({"command": "command", "about": "what it fills"}, rows))]
    if machines := _machines(newest):
        tables.append(("Measured on", machines))
    tables.append(("Made from", Table({"told": "source"}, [{"told": sentence} for sentence in sources.told])))
    about = (
        "Virtual seconds come from a clock that jumps, and are the same on every machine; all else depends on the"
        " machine and its neighbours. Under each figure stands the commit that it was measured at."
    )
    return Section("reproduce", "How to reproduce it", about, tables=tables)


def _machines(newest: Newest) -> Table:
    """A column for each environment of the newest figures, those with most of them first."""
    counted: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for each in newest:
        if each.environment:
            counted.setdefault(tuple(sorted(each.environment.items())), []).append(each.commit)
    most = sorted(counted.items(), key=lambda item: -len(item[1]))[:_MOST_MACHINES]
    columns = [
        {**dict(machine), "figures": len(used), "commits": ", ".join(sorted({*map(short, used)}))}
        for machine, used in most
    ]
    names = dict.fromkeys(["figures", "commits", *(name for column in columns for name in column)])
    rows = [
        {"name": name, **{str(place): column.get(name) for place, column in enumerate(columns)}}
        for name in names
        if any(column.get(name, "none") != "none" for column in columns)
    ]
    headings = {str(place): "" if len(columns) == 1 else f"environment {place + 1}" for place in range(len(columns))}
    return Table({"name": "", **headings}, rows)

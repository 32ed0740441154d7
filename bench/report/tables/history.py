"""Over commits and over nights: each series beside its own beginning, and where it changed."""

from __future__ import annotations

from collections.abc import Sequence

from bench.gate.history import Step
from bench.gate.history import steps as steps_of
from bench.report.newest import SPEED_UP
from bench.report.sources import History, Night
from bench.report.table import Row, Table, short
from bench.report.tables import memory


def change_points(history: History) -> tuple[list[Step], str]:
    """As the gate's advice finds them; and why there are none, where asv is not installed."""
    try:
        from asv.step_detect import detect_steps
    except ImportError:
        return [], "asv is not installed here, so no change points are marked: pip install '.[bench]'"
    return [step for name, points in history.series.items() for step in steps_of(name, points, detect_steps)], ""


def over_commits(history: History, steps: Sequence[Step]) -> Table:
    """Every point in per cent of its series' oldest; series that did not change and go the same way are one line.

    A series that begins at 0 and does not stay there has no such share: its change points are told all the same.
    """
    order = {commit: place for place, commit in enumerate(history.commits)}
    changed = {step.series for step in steps}
    lines: dict[tuple[str, tuple[tuple[str, float], ...]], list[str]] = {}
    for name, points in history.series.items():
        base = points[0][1]
        if base or not any(value for _, value in points):
            shares = tuple((commit, 100 * value / base if base else 100.0) for commit, value in points)
            lines.setdefault((name if name in changed else "", shares), []).append(name)
    rows: list[Row] = [
        {
            "series": readable(names[0]) if len(names) == 1 else f"{len(names)} series",
            "line": line,
            "place": order[commit],
            "commit": short(commit),
            "share": share,
            "has_moved": names[0] in changed,
        }
        for line, ((_, shares), names) in enumerate(lines.items())
        for commit, share in shares
    ]
    return Table({"series": "series", "commit": "commit", "share": "% of its oldest"}, rows)


def moved(history: History, steps: Sequence[Step]) -> Table:
    """The change points; higher is worse in every series that asv keeps."""
    order = {commit: place for place, commit in enumerate(history.commits)}
    rows: list[Row] = []
    for step in sorted(steps, key=lambda step: (order[step.commit], step.series)):
        base = history.series[step.series][0][1]
        rows.append(
            {
                "series": readable(step.series),
                "commit": short(step.commit),
                "place": order[step.commit],
                "before": step.before,
                "after": step.after,
                "share": 100 * step.after / base if base else None,
                "is_worse": step.after > step.before,
                "change": f"{step.after / step.before - 1:+.1%}" if step.before else "from 0",
            }
        )
    columns = {"series": "series", "commit": "commit", "before": "before", "after": "after", "change": "change"}
    return Table(columns, rows)


def listed(table: Table) -> Table:
    """For a reader: a row for each line of the plot, with its beginning, its end and its extremes."""
    lines: dict[int, list[Row]] = {}
    for row in table.rows:
        lines.setdefault(row["line"], []).append(row)
    rows = [
        {
            "series": line[0]["series"],
            "commits": len(line),
            "newest": line[-1]["share"],
            "least": min(row["share"] for row in line),
            "most": max(row["share"] for row in line),
        }
        for line in lines.values()
    ]
    columns = {"series": "series", "commits": "commits", "newest": "newest, % of the oldest", "least": "least, %"}
    return Table({**columns, "most": "most, %"}, rows)


def comparable(nights: Sequence[Night]) -> list[Night]:
    """Those in the setting of the newest: the same device and model."""
    return [night for night in nights if night.setting == nights[-1].setting]


def speed_ups_by_night(nights: Sequence[Night]) -> Table:
    """Of the largest size that was measured in the newest of the nights that measured any."""
    everything = ((night, each) for night in nights for each in night.records)
    found = [(night, each) for night, each in everything if each.metric == SPEED_UP and not isinstance(each.value, str)]
    newest = max((night.when for night, _ in found), default="")
    n = max((each.n for night, each in found if night.when == newest), default=0)
    rows: list[Row] = [
        {**_of(night), "mode": each.mode, "n": n, "speed_up": float(each.value)} for night, each in found if each.n == n
    ]
    return Table({"when": "night", "mode": "mode", "speed_up": "speed-up, ×", **_NIGHT}, rows)


def peaks_by_night(nights: Sequence[Night]) -> Table:
    """Of the largest batch that there is."""
    found = [(night, *peak) for night in nights for peak in memory.peaks(night.records)]
    size = max((size for *_, size in found), default=0)
    rows: list[Row] = [
        {**_of(night), "kind": kind, "batch_size": size, "mebibytes": float(each.value) / memory.MIB}
        for night, each, kind, its in found
        if its == size
    ]
    return Table({"when": "night", "kind": "kind", "mebibytes": "MiB", **_NIGHT}, rows)


_NIGHT = {"is_clean": "clean", "commit": "commit"}


def _of(night: Night) -> Row:
    return {"when": night.when[:16].replace("T", " "), "is_clean": night.is_clean, "commit": short(night.commit)}


def readable(name: str) -> str:
    """asv names a series by its module, its class and its method."""
    return name.removeprefix("series.").replace(".track_", ": ").replace("_", " ")

"""Histories: a thin line for each series over commits, thick and marked where it changed; and speed-ups over nights."""

from __future__ import annotations

from typing import Any

import altair as alt

from bench.report.palette import var
from bench.report.plots import look, memory
from bench.report.table import Table

#: Series that changed; more of them would write over each other.
_MOST_NAMED = 6


def over_commits(table: Table, moved: Table) -> dict[str, Any]:
    commits = {row["place"]: row["commit"] for row in table.rows}
    shares = [row["share"] for row in table.rows]
    names = "[" + ", ".join(f"'{commits.get(place, '')}'" for place in range(max(commits) + 1)) + "]"
    x = alt.X(
        "place:Q",
        scale=alt.Scale(domain=[-0.3, max(commits) + 0.3], nice=False),
        axis=alt.Axis(labelExpr=f"{names}[datum.value]", tickMinStep=1, labelOverlap="greedy", labelSeparation=8),
        title="commit, oldest first",
    )
    span = max(5.0, 1.25 * max(abs(share - 100) for share in shares))
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[100 - span, 100 + span], nice=False),
        axis=alt.Axis(title=None, tickCount=6, labelExpr="datum.label + ' %'"),
    )
    tips = [
        alt.Tooltip("series:N"),
        alt.Tooltip("commit:N"),
        alt.Tooltip("share:Q", title="% of its oldest", format=".1f"),
    ]
    still = look.chart([row for row in table.rows if not row["has_moved"]]).encode(x=x, y=y, detail="line:N")
    lively = look.chart([row for row in table.rows if row["has_moved"]]).encode(x=x, y=y, detail="line:N")
    marks = [row for row in moved.rows if row["share"] is not None]
    worse = alt.Color("is_worse:N", scale=alt.Scale(domain=[True, False], range=[var("bad"), var("good")]), legend=None)
    direction = alt.Shape(
        "is_worse:N", scale=alt.Scale(domain=[True, False], range=["triangle-up", "triangle-down"]), legend=None
    )
    told = [alt.Tooltip("series:N"), alt.Tooltip("commit:N"), alt.Tooltip("change:N")]
    layers = [
        still.mark_line(strokeWidth=1, color=var("quiet"), interpolate="step-after"),
        lively.mark_line(strokeWidth=1.8, color=var("ink"), interpolate="step-after"),
        lively.mark_point(filled=True, size=30, color=var("ink")).encode(tooltip=tips),
        look.chart(marks)
        .mark_point(filled=True, size=140)
        .encode(x=x, y=y, color=worse, shape=direction, tooltip=told),
    ]
    newest = {row["line"]: row for row in table.rows if row["has_moved"]}
    if len(newest) <= _MOST_NAMED:
        names = look.chart([*newest.values()]).mark_text(align="right", baseline="bottom", dy=-6)
        layers.append(names.encode(x=x, y=y, text="series:N"))
    return look.finished(layers, "of the oldest value; higher is worse")


def speed_ups_by_night(table: Table) -> dict[str, Any]:
    modes = list(dict.fromkeys(row["mode"] for row in table.rows))
    y = alt.Y("speed_up:Q", axis=alt.Axis(title=None, tickCount=6, labelExpr="datum.label + '×'"))
    base = look.chart(table.rows).encode(y=y, color=look.colour(modes))
    return look.finished(_nights(base, table), "speed-up over sync")


def peaks_by_night(table: Table) -> dict[str, Any]:
    y = alt.Y("mebibytes:Q", axis=alt.Axis(title=None, tickCount=6))
    base = look.chart(table.rows).encode(y=y, color=memory.colour(table))
    return look.finished(_nights(base, table), "MiB at the fullest moment of a batch")


def _nights(base: alt.Chart, table: Table) -> list[alt.Chart]:
    """A line through the clean ones; the others hollow beside it."""
    axis = alt.Axis(labelExpr="slice(datum.label, 0, 10)", labelAngle=0, labelOverlap="greedy", labelSeparation=8)
    tips = [alt.Tooltip(f"{name}:N", title=heading) for name, heading in table.columns.items()]
    order = sorted({row["when"] for row in table.rows})
    placed = base.encode(x=alt.X("when:N", sort=order, axis=axis, title="night"))
    clean, dirty = placed.transform_filter("datum.is_clean"), placed.transform_filter("!datum.is_clean")
    return [
        clean.mark_line(),
        clean.mark_point(filled=True).encode(tooltip=tips),
        dirty.mark_point(filled=False, fill=var("paper"), strokeWidth=1.6).encode(tooltip=tips),
    ]

"""Claims of the source documents beside what is here; and speed-ups by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from bench.report.palette import var
from bench.report.plots import look
from bench.report.table import Row, Table
from bench.scenarios import BATCH_SIZES, SIZES

_TIMES = "datum.label + '×'"
#: Below this, the axis of speed-ups needs finer ticks: at 1 and 3 alone, nothing could be read.
_SMALL = 5.0


def claims(table: Table) -> dict[str, Any]:
    """A row for each claim: hollow what they say, filled what is here, a tick where the ideal is."""
    top = 1.2 * max(max(row["here"], row["ideal"], row["claimed"]) for row in table.rows)
    axis = alt.Axis(values=[1, 3, 10, 30, 100, 300], format="~g", labelExpr=_TIMES, grid=True)
    scale = alt.Scale(type="log", domain=[1, top], nice=False)
    x = alt.X("here:Q", scale=scale, axis=axis, title="times less (log scale)")
    tips = [
        alt.Tooltip("claim:N", title="setting"),
        alt.Tooltip("claimed:Q", title="claimed, ×", format=".3~g"),
        alt.Tooltip("here:Q", title="here, ×", format=".1f"),
        alt.Tooltip("ideal:Q", title="ideal, ×", format=".1f"),
        alt.Tooltip("from:N", title="from"),
    ]
    base = look.chart(table.rows)
    layers = [
        base.mark_rule(strokeWidth=3).encode(x=alt.X("claimed:Q"), x2="here:Q"),
        base.mark_tick(color=var("ink"), thickness=1.5, height=22).encode(x="ideal:Q"),
        look.hollow(base).encode(x="claimed:Q", tooltip=tips),
        base.mark_point(filled=True, size=75, color=var("asyncio")).encode(x=x, tooltip=tips),
    ]
    return look.listed("claim", {row["claim"]: f"{row['here']:.1f}×" for row in table.rows}, layers)


def by_size(table: Table, claimed: Sequence[Row] = (), is_labelled: bool = False) -> dict[str, Any]:
    """A line for each mode; dashed what is ideal, hollow what is claimed."""
    modes = list(dict.fromkeys(row["mode"] for row in table.rows))
    figures = [row[name] for row in table.rows for name in ("speed_up", "ideal") if row[name]]
    ticks = [1, 3, 10, 30, 100] if max(figures) > _SMALL else [0.3, 0.5, 1, 1.5, 2, 3, 5]
    x = alt.X(
        "n:Q",
        scale=alt.Scale(type="log", domain=[SIZES[0] * 0.7, SIZES[-1] * 1.5], nice=False),
        axis=alt.Axis(values=list(SIZES), format="d"),
        title="samples (log scale)",
    )
    y = alt.Y(
        "speed_up:Q",
        scale=alt.Scale(type="log", domain=[0.8 * min(1.0, *figures), 1.5 * max(figures)], nice=False),
        axis=alt.Axis(values=ticks, format="~g", labelExpr=_TIMES, title=None),
    )
    tips = [
        alt.Tooltip("mode:N"),
        alt.Tooltip("n:Q", title="samples"),
        alt.Tooltip("speed_up:Q", title="speed-up, ×", format=".1f"),
        alt.Tooltip("ideal:Q", title="ideal, ×", format=".1f"),
        alt.Tooltip("seconds:Q", format=",.3~f"),
    ]
    base = look.chart(table.rows).encode(x=x)
    ideals = {(row["n"], row["ideal"]): row for row in table.rows if row["ideal"] and row["mode"] != "sync"}
    layers = [
        base.mark_line().encode(y=y, color=look.colour(modes)),
        look.dashed_line(look.chart([*ideals.values()])).encode(x=x, y="ideal:Q", detail="mode:N"),
        base.mark_point(filled=True, size=80).encode(
            y=y, color=look.colour(modes), shape=look.shape(modes), tooltip=tips
        ),
    ]
    if claimed:
        there = look.chart(claimed).transform_calculate(label="'claimed ' + format(datum.speed_up, '~g') + '×'")
        tips = [alt.Tooltip("claim:N"), alt.Tooltip("speed_up:Q", title="claimed, ×")]
        layers += [
            look.hollow(there).encode(x=x, y=y, tooltip=tips),
            there.mark_text(baseline="top", dy=10, color=var("quiet")).encode(x=x, y=y, text="label:N"),
        ]
    if is_labelled:
        label = "format(datum.speed_up, '.3~g') + '×'"
        labelled = base.transform_filter("datum.mode != 'sync'").transform_calculate(label=label)
        layers.append(labelled.mark_text(baseline="bottom", dy=-9, fontWeight="bold").encode(y=y, text="label:N"))
    return look.finished(layers, "speed-up over sync (log scale)")


def sizes_of(table: Table) -> dict[int, str]:
    """number of samples → the shape of its marks."""
    shapes = ("circle", "square", "diamond", "triangle-up")
    return {n: shapes[SIZES.index(n)] for n in dict.fromkeys(row["n"] for row in table.rows)}


def by_batch_size(table: Table) -> dict[str, Any]:
    """A line for each number of samples, told apart by their marks."""
    sizes = sizes_of(table)
    x = alt.X(
        "batch_size:Q",
        scale=alt.Scale(type="log", base=2, domain=[0.9, BATCH_SIZES[-1] * 1.1], nice=False),
        axis=alt.Axis(values=list(BATCH_SIZES), format="d"),
        title="batch size (log scale)",
    )
    y = alt.Y("speed_up:Q", scale=alt.Scale(zero=True), axis=alt.Axis(labelExpr=_TIMES, title=None, tickCount=6))
    tips = [
        alt.Tooltip("n:Q", title="samples"),
        alt.Tooltip("batch_size:Q", title="batch size"),
        alt.Tooltip("speed_up:Q", title="speed-up, ×", format=".2f"),
        alt.Tooltip("calls:Q", title="calls of the model"),
    ]
    shape = alt.Shape("n:N", scale=alt.Scale(domain=list(sizes), range=list(sizes.values())), legend=None)
    base = look.chart(table.rows).encode(x=x, y=y, detail="n:N")
    layers = [
        base.mark_line(color=var("self")),
        base.mark_point(filled=True, size=80, color=var("self")).encode(shape=shape, tooltip=tips),
    ]
    return look.finished(layers, "speed-up over batch size 1")

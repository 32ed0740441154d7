"""Sweeps with their knees, the limit as time goes on, and "auto" beside the best fixed setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from bench.report.palette import var
from bench.report.plots import look
from bench.report.table import Row, Table

_HEIGHT = 210
#: So many settings are each told on their axis.
_FEW = 8
_CROSS = "M-0.7,-0.7L0.7,0.7M0.7,-0.7L-0.7,0.7"


def sweep(table: Table, knee: int | None) -> dict[str, Any]:
    """A point for each fixed setting; "auto", if it was asked, as a line across, and the knee, if any, as one down."""
    fixed = [row for row in table.rows if row["at_once"] != "auto"]
    auto = [row for row in table.rows if row["at_once"] == "auto"]
    settings = [row["at_once"] for row in fixed]
    x = alt.X(
        "at_once:Q",
        scale=alt.Scale(type="log", domain=[fixed[0]["at_once"], fixed[-1]["at_once"] * 1.15], nice=False),
        axis=alt.Axis(values=[10**power for power in range(4)] if len(fixed) > _FEW else settings, format="d"),
        title="at once (log scale)",
    )
    top = 1.22 * max(row["pace"] for row in table.rows)
    y = alt.Y("pace:Q", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(title=None, tickCount=5))
    tips = [
        alt.Tooltip("at_once:N", title="at once"),
        alt.Tooltip("pace:Q", title="samples a second", format=".1f"),
        alt.Tooltip("refused:Q", title=table.columns["refused"], format=".1f"),
    ]
    base = look.chart(fixed).encode(x=x, y=y)
    told = f"knee: {knee}" if knee is not None else f"no knee up to {settings[-1]}"
    at_knee = look.chart([{"at_once": knee or settings[-1], "label": told}]).encode(x=x)
    across = look.chart([{**row, "label": f"auto: {row['pace']:.1f} a second"} for row in auto]).encode(y=y)
    return look.finished(
        [
            *([at_knee.mark_rule(strokeDash=look.DASHES, strokeWidth=look.THIN, color=var("ink"))] if knee else []),
            across.mark_rule(strokeWidth=1.6, color=var("ink")).encode(tooltip=tips[1:]),
            base.mark_line(color=var("asyncio")),
            base.mark_point(filled=True, color=var("asyncio")).encode(tooltip=tips),
            across.mark_text(align="left", baseline="bottom", dx=4, dy=-5).encode(x=alt.value(0), text="label:N"),
            at_knee.mark_text(align="right", baseline="bottom", dx=-6, dy=-6).encode(
                y=alt.value(_HEIGHT), text="label:N"
            ),
        ],
        "samples a second",
        _HEIGHT,
    )


def watched(table: Table, refused: Sequence[Row], ends: Sequence[Row]) -> dict[str, Any]:
    """In flight as an area, what is allowed as a line, what the endpoint bears dashed, refusals as crosses."""
    last = ends[-1]["time"]
    x = alt.X(
        "time:Q", scale=alt.Scale(domain=[0, last], nice=False), axis=alt.Axis(tickCount=5), title="virtual seconds"
    )
    top = 1.35 * max(max(row["in_flight"], row["borne"] or 0) for row in table.rows)
    y = alt.Y(
        "in_flight:Q", scale=alt.Scale(domain=[0, top], nice=False, clamp=True), axis=alt.Axis(title=None, tickCount=5)
    )
    tips = [
        alt.Tooltip("time:Q", title="virtual s", format=".1f"),
        alt.Tooltip("in_flight:Q", title="in flight"),
        alt.Tooltip("allowed:Q", format=".1f"),
        alt.Tooltip("borne:Q"),
    ]
    base = look.chart(table.rows).encode(x=x)
    step: Any = {"interpolate": "step-after", "clip": True}
    layers = [
        look.chart(ends).mark_rule(strokeWidth=1).encode(x=x),
        base.mark_area(color=var("asyncio"), opacity=0.22, line=False, **step).encode(y=y),
        base.mark_line(strokeWidth=1.8, color=var("asyncio"), **step).encode(y="allowed:Q"),
    ]
    if any(row["borne"] is not None for row in table.rows):
        layers.append(look.dashed_line(base).encode(y="borne:Q"))
    if refused:
        crosses = look.chart(refused).mark_point(
            shape=_CROSS, size=40, filled=False, stroke=var("bad"), strokeWidth=1.6
        )
        told = [alt.Tooltip("time:Q", title="virtual s", format=".1f"), alt.Tooltip("refused:Q", title="refused")]
        layers.append(crosses.encode(x=x, y=y, tooltip=told))
    layers.append(base.mark_point(opacity=0, size=120).encode(y=y, tooltip=tips))
    return look.finished(layers, "requests at once", _HEIGHT)


def of_the_best(table: Table) -> dict[str, Any]:
    """A row for each endpoint: filled all batches, hollow the first one."""
    figures = [row[name] for row in table.rows for name in ("share", "first") if row[name] is not None]
    low = 5 * (min(95.0, *figures) // 5)
    scale = alt.Scale(domain=[low, max(102.0, *figures)], nice=False)
    x = alt.X(
        "share:Q",
        scale=scale,
        axis=alt.Axis(labelExpr="datum.label + ' %'", tickCount=6, grid=True),
        title=f"of the best fixed limit's pace (the scale begins at {low:.0f} %)",
    )
    tips = [
        alt.Tooltip("endpoint:N", title="the endpoint"),
        alt.Tooltip("best:Q", title="best fixed", format=",d"),
        alt.Tooltip("share:Q", title="auto, % of that", format=".1f"),
        alt.Tooltip("first:Q", title="its first batch, %", format=".1f"),
        alt.Tooltip("refused:Q", title="refused, %", format=".1f"),
    ]
    base = look.chart(table.rows)
    layers = [
        base.mark_rule(strokeWidth=3).encode(x=alt.X("first:Q", scale=scale), x2="share:Q"),
        look.hollow(base).encode(x=alt.X("first:Q", scale=scale), tooltip=tips),
        base.mark_point(filled=True, size=75, color=var("asyncio")).encode(x=x, tooltip=tips),
    ]
    return look.listed("endpoint", {row["endpoint"]: f"{row['share']:.1f} %" for row in table.rows}, layers)

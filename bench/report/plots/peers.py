"""Other clients beside rewardcore: CPU a sample, and a process's first batch."""

from __future__ import annotations

from typing import Any

import altair as alt

from bench.report.palette import var
from bench.report.plots import look
from bench.report.table import Table

_OURS = alt.Color("is_ours:N", scale=alt.Scale(domain=[True, False], range=[var("asyncio"), var("quiet")]), legend=None)


def cpu(table: Table) -> dict[str, Any]:
    """A row for each client; rewardcore is 1."""
    figures = [row["times"] for row in table.rows]
    x = alt.X(
        "times:Q",
        scale=alt.Scale(type="log", domain=[0.7 * min(1.0, *figures), 1.3 * max(figures)], nice=False),
        axis=alt.Axis(values=[0.5, 1, 3, 10, 30, 100], format="~g", labelExpr="datum.label + '×'", grid=True),
        title="times rewardcore's CPU a sample (log scale)",
    )
    tips = [
        alt.Tooltip("client:N"),
        alt.Tooltip("times:Q", title="times rewardcore's CPU", format=".2f"),
        alt.Tooltip("rounds:Q"),
    ]
    base = look.chart(table.rows).transform_calculate(one="1")
    layers = [
        base.mark_rule(strokeWidth=3).encode(x=alt.X("one:Q"), x2="times:Q"),
        base.mark_point(filled=True, size=90).encode(x=x, color=_OURS, tooltip=tips),
    ]
    return look.listed("client", {row["client"]: f"{row['times']:.2g}×" for row in table.rows}, layers)


def start(table: Table) -> dict[str, Any]:
    """A bar for each client, of its stages, one after the other."""
    ends: dict[str, float] = {}
    rows = []
    for row in table.rows:
        begin = ends.get(row["client"], 0.0)
        ends[row["client"]] = begin + row["seconds"]
        rows.append({**row, "begin": begin, "end": ends[row["client"]]})
    x = alt.X(
        "begin:Q",
        scale=alt.Scale(domain=[0, max(ends.values())], nice=False),
        axis=alt.Axis(tickCount=6, grid=True),
        title="CPU seconds",
    )
    tips = [alt.Tooltip("client:N"), alt.Tooltip("stage:N"), alt.Tooltip("seconds:Q", title="CPU s", format=".3f")]
    orders = sorted({row["order"] for row in rows})
    shade = alt.Opacity("order:O", scale=alt.Scale(domain=orders, range=[1.0, 0.6, 0.3]), legend=None)
    bars = look.chart(rows).mark_bar(height=14).encode(x=x, x2="end:Q", color=_OURS, opacity=shade, tooltip=tips)
    return look.listed("client", {name: f"{end:.2f} s" for name, end in ends.items()}, [bars])

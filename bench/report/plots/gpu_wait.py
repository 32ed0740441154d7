"""What the GPUs wait: in a step, as claimed, and how much of its speed a busy main thread loses."""

from __future__ import annotations

from typing import Any

import altair as alt

from bench.report.plots import look
from bench.report.table import Table

#: Below it the scale is a line, above it a logarithm: 0 has a place.
_LINEAR = 1


def waits(table: Table, name: str) -> dict[str, Any]:
    """A row for each shape of a trainer, or each mode; hollow what is claimed, where something is."""
    top = 1.3 * max([1.0, *(row["seconds"] for row in table.rows)])
    x = alt.X(
        "seconds:Q",
        scale=alt.Scale(type="symlog", constant=_LINEAR, domain=[0, top], nice=False),
        axis=alt.Axis(values=[0, 1, 3, 10, 30, 100, 300, 1000], format="d", grid=True),
        title="virtual seconds (log scale, with 0)",
    )
    tips = [alt.Tooltip(f"{name}:N"), alt.Tooltip("seconds:Q", title="GPU wait, virtual s", format=",.1f")]
    base = look.chart(table.rows).transform_calculate(none="0")
    layers = [base.mark_rule(strokeWidth=3).encode(x=alt.X("none:Q"), x2="seconds:Q")]
    if "claimed" in table.columns:
        tips.append(alt.Tooltip("claimed:Q", title="claimed, s"))
        layers.append(look.hollow(base).encode(x="claimed:Q", tooltip=tips))
    mark = base.mark_point(filled=True, size=80)
    layers.append(mark.encode(x=x, color=look.colour(), shape=look.shape(), tooltip=tips))
    return look.listed(name, {row[name]: f"{row['seconds']:,.1f} s" for row in table.rows}, layers)


def beside(table: Table) -> dict[str, Any]:
    """A row for what the main thread runs; the bar around 0 is how much the control differs from itself."""
    far = 5 + max(abs(row[name]) for row in table.rows for name in ("lost", "noise"))
    x = alt.X(
        "lost:Q",
        scale=alt.Scale(domain=[-far, far], nice=False),
        axis=alt.Axis(labelExpr="datum.label + ' %'", tickCount=6, grid=True),
        title="of its speed lost",
    )
    tips = [
        alt.Tooltip("load:N", title="the main thread runs"),
        alt.Tooltip("background:N", title="judging in a"),
        alt.Tooltip("lost:Q", title="speed lost, %", format=".1f"),
        alt.Tooltip("noise:Q", title="noise of the control, %", format=".1f"),
    ]
    rows = [{**row, "name": f"{row['load']}, judging in a {row['background']}"} for row in table.rows]
    base = look.chart(rows).transform_calculate(less="-datum.noise")
    layers = [
        base.mark_rule(strokeWidth=12, strokeCap="butt").encode(x=alt.X("less:Q"), x2="noise:Q", tooltip=tips),
        base.mark_point(filled=True, size=100).encode(x=x, color=look.colour(), shape=look.shape(), tooltip=tips),
    ]
    return look.listed("name", {row["name"]: f"{row['lost']:.1f} %".replace("-", "−") for row in rows}, layers)

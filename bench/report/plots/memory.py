"""Memory by batch size: dashed and hollow what is predicted, filled what was measured."""

from __future__ import annotations

from typing import Any

import altair as alt

from bench.report.palette import var
from bench.report.plots import look
from bench.report.table import Table
from bench.scenarios import BATCH_SIZES

#: In the order of the table's kinds: the self mode's own, and others that are no mode's.
COLOURS = ("self", "rate", "ink", "bad", "quiet")


def kinds_of(table: Table) -> dict[str, str]:
    """kind → the name of its colour; where there are more kinds than colours, they begin again."""
    kinds = dict.fromkeys(row["kind"] for row in table.rows)
    return {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(kinds)}


def colour(table: Table) -> alt.Color:
    kinds = kinds_of(table)
    scale = alt.Scale(domain=list(kinds), range=[var(name) for name in kinds.values()])
    return alt.Color("kind:N", scale=scale, legend=None)


def by_batch_size(table: Table) -> dict[str, Any]:
    x = alt.X(
        "batch_size:Q",
        scale=alt.Scale(domain=[0, 1.06 * max(row["batch_size"] for row in table.rows)], nice=False),
        axis=alt.Axis(values=list(BATCH_SIZES), format="d"),
        title="batch size",
    )
    top = 1.1 * max(row["mebibytes"] for row in table.rows)
    y = alt.Y("mebibytes:Q", scale=alt.Scale(domain=[0, top], nice=False), axis=alt.Axis(title=None, tickCount=6))
    tips = [
        alt.Tooltip("kind:N"),
        alt.Tooltip("batch_size:Q", title="batch size"),
        alt.Tooltip("mebibytes:Q", title="MiB", format=",.2f"),
    ]
    base = look.chart(table.rows).encode(x=x, y=y, color=colour(table))
    predicted, measured = base.transform_filter("datum.is_predicted"), base.transform_filter("!datum.is_predicted")
    layers = [
        predicted.mark_line(strokeDash=look.DASHES, strokeWidth=1.8),
        predicted.mark_point(filled=False, fill=var("paper"), strokeWidth=1.8).encode(tooltip=tips),
        measured.mark_line(),
        measured.mark_point(filled=True).encode(tooltip=tips),
    ]
    return look.finished(layers, "MiB at the fullest moment of a batch")

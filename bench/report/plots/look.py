"""What all plots have in common: type, lines and ink; and lists, whose rows have name and figure above their marks.

A name above its row, in place of an axis at the left, leaves the whole width of a phone to the marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from bench.report.palette import MODES, SHAPES, known, var
from bench.report.table import Row

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
HEIGHT = 280
#: Pixels of a row with its name above it, and how far below its middle the marks are.
STEP, DROP = 46, 9
DASHES = [4, 3]
THIN = 1.3

CONFIG: dict[str, Any] = {
    "aria": False,  # the figure has a name, and a table for those who cannot see it
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 2, "right": 8, "top": 4, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "ticks": False,
        "gridColor": var("grid"),
        "labelColor": var("quiet"),
        "labelFontSize": 12,
        "labelPadding": 6,
        "titleColor": var("quiet"),
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": var("rule"), "labelFlush": False},
    "title": {"anchor": "start", "color": var("quiet"), "fontSize": 12, "fontWeight": "normal", "offset": 10},
    "text": {"color": var("ink"), "fontSize": 12},
    "rule": {"color": var("rule")},
    "line": {"strokeWidth": 2.2},
    "point": {"size": 70, "opacity": 1},
}


def chart(rows: Sequence[Row]) -> alt.Chart:
    return alt.Chart(alt.Data(values=list(rows)))


def finished(layers: Sequence[alt.Chart], title: str = "", height: int = HEIGHT) -> dict[str, Any]:
    """The layers as one plot in Vega-Lite; `title` says what its vertical axis is, above it."""
    whole = alt.layer(*layers).properties(width="container", height=height)
    document: dict[str, Any] = (whole.properties(title=title) if title else whole).to_dict()
    named = {key: value for key, value in document.items() if key not in ("$schema", "config")}  # the page has one
    return {**named, "autosize": {"type": "fit-x", "contains": "padding"}}


def colour(modes: Sequence[str] = MODES) -> alt.Color:
    scale = alt.Scale(domain=list(modes), range=[var(known(mode)) for mode in modes])
    return alt.Color("mode:N", scale=scale, legend=None)


def shape(modes: Sequence[str] = MODES) -> alt.Shape:
    return alt.Shape(
        "mode:N", scale=alt.Scale(domain=list(modes), range=[SHAPES[known(m)] for m in modes]), legend=None
    )


def hollow(base: alt.Chart) -> alt.Chart:
    """A claim, or whatever else was not measured here and now."""
    return base.mark_point(filled=False, stroke=var("ink"), fill=var("paper"), strokeWidth=1.6, size=130)


def dashed_line(base: alt.Chart) -> alt.Chart:
    """An ideal, or what an endpoint bears."""
    return base.mark_line(strokeDash=DASHES, strokeWidth=THIN, color=var("ink"))


def listed(field: str, labels: Mapping[str, str], layers: Sequence[alt.Chart]) -> dict[str, Any]:
    """A row for each name of `labels`: the name and, at the right, its figure; below them the layers' marks."""
    y = alt.Y(f"{field}:N", sort=list(labels), axis=None, scale=alt.Scale(paddingInner=0, paddingOuter=0))
    above = chart([{field: name, "label": label} for name, label in labels.items()]).encode(
        y=y, yOffset=alt.value(-DROP - 3)
    )
    # Whatever is long gives way to the figure.
    names = above.mark_text(align="left", color=var("quiet"), limit=alt.ExprRef("width - 60"))
    figures = above.mark_text(align="right", fontWeight="bold")
    return finished(
        [
            *(layer.encode(y=y, yOffset=alt.value(DROP)) for layer in layers),
            names.encode(x=alt.value(0), text=f"{field}:N"),
            figures.encode(x=alt.value("width"), text="label:N"),
        ],
        height=STEP * len(labels),
    )

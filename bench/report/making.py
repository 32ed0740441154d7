"""Everything put together: the page, and a picture of its first plots for a document that cannot hold a page."""

from __future__ import annotations

import vl_convert

from bench.records import commit
from bench.report import headline, sections
from bench.report.computed import Endpoints
from bench.report.newest import Newest
from bench.report.page import Page, html
from bench.report.palette import COLOURS, painted
from bench.report.plots import look, speed_up
from bench.report.sources import Sources
from bench.report.table import short
from bench.report.tables import speed_up as tables

_WIDTH = 430


def make_page(title: str, made: str, newest: Newest, sources: Sources, endpoints: Endpoints) -> str:
    about = (
        "LLM-as-judge rewards for RL post-training: how fast they are, what they cost, and how that was measured."
        f" Made {made} at commit {short(commit())}."
    )
    footer = (
        f"Drawn with Vega {vl_convert.get_vega_version()} and Vega-Embed {vl_convert.get_vega_embed_version()}"
        " (BSD-3-Clause), which stand in this file: it loads nothing from anywhere."
    )
    return html(
        Page(
            title,
            about,
            list(headline.cards(newest)),
            sections.in_order(newest, sources, endpoints),
            footer,
            look.CONFIG,
            vl_convert.javascript_bundle(),
        )
    )


def make_picture(newest: Newest) -> bytes:
    """A PNG: claims, and speed-ups by size in virtual time, side by side on white."""
    plots = [
        speed_up.claims(tables.claims(newest)),
        speed_up.by_size(tables.by_size(newest, "respx"), tables.claimed_by_size(), is_labelled=True),
    ]
    sized = [{key: value for key, value in plot.items() if key != "autosize"} | {"width": _WIDTH} for plot in plots]
    document = {"hconcat": sized, "spacing": 50, "config": {**look.CONFIG, "background": COLOURS["paper"].light}}
    return bytes(vl_convert.svg_to_png(painted(vl_convert.vegalite_to_svg(document)), scale=2))

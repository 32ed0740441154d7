"""Everything put together: sources and what was computed in, the page out."""

from __future__ import annotations

import vl_convert

from bench.records import commit
from bench.report import headline, sections
from bench.report.computed import Endpoints
from bench.report.newest import Newest
from bench.report.page import Page, html
from bench.report.plots import look
from bench.report.sources import Sources
from bench.report.table import short


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

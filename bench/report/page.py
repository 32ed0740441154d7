"""The page: HTML around plots, tables and sentences. Everything that comes from outside is escaped here, and only here.

One file, opened from a disk: the style sheet, the scripts and the plots' data stand in it, and a content security
policy forbids the browser to load anything else. Plots are the scripts' alone; every figure has its table behind it,
which needs none. Nothing here knows what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib import resources
from typing import Any, Literal

from bench.report import palette
from bench.report.table import Table, told

#: Vega makes functions of its expressions, which is what `unsafe-eval` allows; nothing may come from elsewhere.
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"


#: Columns that a phone has room for.
_NARROW = 5


@dataclass(frozen=True)
class Key:
    """A line of a legend: one of `SIGNS`, the name of its colour, and what it stands for."""

    sign: str
    colour: str
    label: str


@dataclass(frozen=True)
class Panel:
    spec: dict[str, Any]
    title: str = ""


@dataclass(frozen=True)
class Figure:
    id: str
    title: str
    caption: str
    panels: Sequence[Panel]
    tables: Sequence[tuple[str, Table]]
    legend: Sequence[Key] = ()
    provenance: str = ""
    layout: Literal["half", "wide", "beside"] = "half"  # beside: its words and its table stand at the right
    is_open: bool = False  # its table is shown at once


@dataclass(frozen=True)
class Card:
    """A figure of the headline."""

    value: str
    unit: str
    label: str
    note: str
    how: str
    command: str


@dataclass(frozen=True)
class Section:
    """`missing` are sentences for what could stand here, each with the command that would fill it."""

    id: str
    title: str
    about: str = ""
    figures: Sequence[Figure] = ()
    missing: Sequence[tuple[str, str]] = ()
    verdict: str = ""
    tables: Sequence[tuple[str, Table]] = ()
    notes: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Page:
    title: str
    about: str
    cards: Sequence[Card]
    sections: Sequence[Section]
    footer: str
    config: dict[str, Any]
    script: str = field(repr=False)  # vega, vega-lite and vega-embed


def html(page: Page) -> str:
    return "\n".join(_page(page)) + "\n"


def _page(page: Page) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
    yield f"<title>{escape(page.title)}</title>"
    yield f"<style>\n{palette.style()}{_file('page.css')}</style>"
    yield "</head>"
    yield "<body>"
    yield f"<header><h1>{escape(page.title)}</h1><p>{escape(page.about)}</p></header>"
    links = "".join(f'<li><a href="#{escape(each.id)}">{escape(each.title)}</a></li>' for each in page.sections)
    yield f'<nav aria-label="Sections"><ul>{links}</ul></nav>'
    yield "<main>"
    if page.cards:
        yield '<section class="cards" aria-label="Headline figures">'
        yield from map(_card, page.cards)
        yield "</section>"
    for section in page.sections:
        yield from _section(section)
    yield "</main>"
    yield f"<footer><p>{escape(page.footer)}</p></footer>"
    yield _data("config", page.config)
    for figure in (figure for section in page.sections for figure in section.figures):
        for place, panel in enumerate(figure.panels):
            yield _data(f"{figure.id}-{place}-spec", panel.spec)
    yield f"<script>{_inert(page.script)}</script>"
    yield f"<script>{_inert(_file('page.js'))}</script>"
    yield "</body>"
    yield "</html>"


def _card(card: Card) -> str:
    unit = f"<small>{escape(card.unit)}</small>" if card.unit else ""
    return (
        f'<article class="card"><p class="value">{escape(card.value)}{unit}</p><h2>{escape(card.label)}</h2>'
        f"<p>{escape(card.note)}</p>"
        f'<p class="how"><span class="badge">{escape(card.how)}</span><code>{escape(card.command)}</code></p></article>'
    )


def _section(section: Section) -> Iterator[str]:
    yield f'<section id="{escape(section.id)}" aria-labelledby="{escape(section.id)}-title">'
    yield f'<h2 id="{escape(section.id)}-title">{escape(section.title)}</h2>'
    if section.about:
        yield f"<p>{escape(section.about)}</p>"
    if section.verdict:
        yield f'<p class="verdict {escape(section.verdict)}">{escape(section.verdict)}</p>'
    if section.figures:
        yield '<div class="figures">'
        for figure in laid_out(section.figures):
            yield from _figure(figure)
        yield "</div>"
    for title, table in section.tables:
        yield f'<div class="table"><h3>{escape(title)}</h3>{_table(title, table)}</div>'
    if section.notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in section.notes) + "</ul>"
    for sentence, command in section.missing:
        yield f'<p class="missing">{escape(sentence)} <code>{escape(command)}</code></p>'
    yield "</section>"


def laid_out(figures: Sequence[Figure]) -> Iterator[Figure]:
    """A half that would stand alone in its row takes all of it."""
    alone: Figure | None = None
    for figure in (*figures, None):
        is_half = figure is not None and figure.layout == "half"
        if alone is not None:
            yield alone if is_half else replace(alone, layout="wide")
        if figure is not None and (not is_half or alone is not None):
            yield figure
        alone = figure if is_half and alone is None else None


def _figure(figure: Figure) -> Iterator[str]:
    id = escape(figure.id)
    yield f'<figure id="{id}" class="{figure.layout}">'
    yield f"<h3>{escape(figure.title)}</h3>"
    if figure.legend:
        yield (
            '<ul class="legend">'
            + "".join(f"<li>{_sign(key)}{escape(key.label)}</li>" for key in figure.legend)
            + "</ul>"
        )
    yield f'<div class="panels{"" if len(figure.panels) > 1 else " one"}">'
    for place, panel in enumerate(figure.panels):
        name = escape(panel.title or figure.title)
        heading = f"<h4>{escape(panel.title)}</h4>" if panel.title else ""
        label = f"{name}: a plot, whose figures are in the table below"
        yield f'<div class="panel">{heading}'
        yield f'<div class="plot" role="img" aria-label="{label}" data-spec="{id}-{place}-spec">'
        yield "<noscript>The plot needs JavaScript; the table below does not.</noscript></div></div>"
    yield "</div>"
    source = f' <span class="source">{escape(figure.provenance)}</span>' if figure.provenance else ""
    yield f"<figcaption>{escape(figure.caption)}{source}</figcaption>"
    yield f"<details{' open' if figure.is_open else ''}><summary>The figures as a table</summary>"
    for title, table in figure.tables:
        heading = f"<h4>{escape(title)}</h4>" if len(figure.tables) > 1 else ""
        yield heading + _table(title, table)
    yield "</details></figure>"


def _table(title: str, table: Table) -> str:
    numeric = {name for name in table.columns if all(_is_number(row.get(name)) for row in table.rows)}

    is_wide = len(table.columns) > _NARROW  # each row becomes a list of its cells on a phone

    def cell(tag: str, name: str, text: str) -> str:
        kind = ' class="number"' if name in numeric else ""
        heading = f' data-heading="{escape(table.columns[name])}"' if is_wide and tag == "td" else ""
        return f"<{tag}{kind}{heading}>{escape(text)}</{tag}>"

    head = "".join(cell("th", name, heading) for name, heading in table.columns.items())
    columns = {name: told([row.get(name) for row in table.rows]) for name in table.columns}
    rows = (
        "".join(cell("td", name, cells[place]) for name, cells in columns.items()) for place in range(len(table.rows))
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    kind = ' class="stacks"' if is_wide else ""
    return f'<table{kind} aria-label="{escape(title)}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


SIGNS = {
    "line": '<path d="M1 7H21" stroke="{0}" stroke-width="2.2"/>',
    "dashed": '<path d="M1 7H21" stroke="{0}" stroke-width="1.5" stroke-dasharray="4 3"/>',
    "circle": '<circle cx="11" cy="7" r="5" fill="{0}"/>',
    "square": '<rect x="6.5" y="2.5" width="9" height="9" fill="{0}"/>',
    "diamond": '<path d="M11 1L17 7L11 13L5 7Z" fill="{0}"/>',
    "hollow": '<circle cx="11" cy="7" r="4.5" fill="var(--paper)" stroke="{0}" stroke-width="1.6"/>',
    "area": '<rect x="1" y="2" width="20" height="10" fill="{0}" opacity="0.22"/>',
    "cross": '<path d="M7 3L15 11M15 3L7 11" stroke="{0}" stroke-width="2.2"/>',
    "tick": '<path d="M11 0V14" stroke="{0}" stroke-width="1.6"/>',
    "triangle-up": '<path d="M11 2L16 12H6Z" fill="{0}"/>',
    "triangle-down": '<path d="M11 12L16 2H6Z" fill="{0}"/>',
    "bar": '<rect x="1" y="2" width="20" height="10" fill="{0}"/>',
}


def _sign(key: Key) -> str:
    drawn = SIGNS[key.sign].format(palette.var(key.colour))
    return f'<svg width="22" height="14" viewBox="0 0 22 14" aria-hidden="true">{drawn}</svg>'


def _data(id: str, document: dict[str, Any]) -> str:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # In a script nothing is markup but its end; and JSON can write < otherwise.
    return f'<script type="application/json" id="{escape(id)}">{text.replace("<", chr(92) + "u003c")}</script>'


def _inert(script: str) -> str:
    """No text in it ends it, nor begins a comment of HTML."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _file(name: str) -> str:
    return resources.files("bench.report").joinpath(name).read_text(encoding="utf-8")

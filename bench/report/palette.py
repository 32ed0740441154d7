"""The page's colours, light and dark, each under one name: plots and style sheet say `var(--asyncio)`, and mean a mode.

The hues are Okabe and Ito's, which colour-blind readers tell apart, darkened or lightened until each stands out from
its background by 3 to 1, text by 4.5 to 1. A plot is an SVG in the page, so it follows the reader's scheme without a
word of script; a picture on its own has no style sheet, and `painted` puts the light colours in.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Colour(NamedTuple):
    light: str
    dark: str


PAPER = Colour("#ffffff", "#14171c")
COLOURS = {
    "paper": PAPER,
    "panel": Colour("#f6f7f9", "#1c2027"),
    "rule": Colour("#dfe3e8", "#343a44"),
    "grid": Colour("#e9ecf0", "#2a2f38"),
    "ink": Colour("#15181d", "#eceff3"),
    "quiet": Colour("#565e6a", "#a7b0bd"),
    "link": Colour("#00629b", "#7cc4f2"),
    # One for each mode, throughout.
    "sync": Colour("#6f7680", "#98a1ad"),
    "process": Colour("#b87500", "#e69f00"),
    "asyncio": Colour("#0072b2", "#3fa3e0"),
    "asyncio-httpx": Colour("#2f93cf", "#7cc4f2"),
    "asyncio-child": Colour("#008a64", "#1fb98a"),
    "self": Colour("#b04f86", "#d98ab5"),
    # And for what is no mode.
    "bad": Colour("#c44e00", "#f08a4b"),
    "good": Colour("#007a58", "#1fb98a"),
    "doubt": Colour("#8a6d00", "#d9b93a"),
    "rate": Colour("#8a6d00", "#d9b93a"),
}
TEXT = ("ink", "quiet", "link", "bad", "good", "doubt")
MODES = ("sync", "process", "asyncio", "asyncio-httpx", "asyncio-child", "self")
#: A second sign beside the colour.
SHAPES = {
    "sync": "circle",
    "process": "square",
    "asyncio": "circle",
    "asyncio-httpx": "diamond",
    "asyncio-child": "triangle-up",
    "self": "square",
}
_VARIABLE = re.compile(r"var\(--([a-z-]+)\)")


def known(mode: str) -> str:
    """The mode whose colour and shape it has: a record may be of one that is newer than this page."""
    return mode if mode in MODES else "sync"


def var(name: str) -> str:
    """As a plot and a style sheet name it."""
    if name not in COLOURS:
        raise KeyError(f"the palette has no colour {name!r}")
    return f"var(--{name})"


def style() -> str:
    """The variables, for readers who prefer the light and for those who prefer the dark; paper is light."""

    def variables(scheme: int) -> str:
        return " ".join(f"--{name}: {colour[scheme]};" for name, colour in COLOURS.items())

    return (
        f":root {{ color-scheme: light dark; {variables(0)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(1)} }} }}\n"
    )


def painted(svg: str) -> str:
    """The same without variables."""
    return _VARIABLE.sub(lambda found: COLOURS[found[1]].light, svg)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it, from 1 to 21."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

"""A picture of the first plots, for a document that cannot hold a page: claims, and speed-ups by size, side by side."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import vl_convert

from bench.report.newest import Newest
from bench.report.palette import painted, var
from bench.report.plots import look, speed_up
from bench.report.tables import speed_up as tables

#: Of each plot, in pixels before they are doubled.
_WIDTH = 400
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def make_picture(newest: Newest) -> bytes:
    """A PNG, on white; both plots of one height."""
    claims = speed_up.claims(tables.claims(newest))
    by_size = speed_up.by_size(tables.by_size(newest, "respx"), tables.claimed_by_size(), is_labelled=True)
    titles = {
        "Times less: claimed (hollow), here, and ideal (tick)": claims,
        "Speed-up over sync by samples, and the ideal (dashed)": by_size,
    }
    size = {"width": _WIDTH, "height": claims["height"]}
    plots = [
        {"layer": plot["layer"], "title": {"text": title, "color": var("ink")}, **size}
        for title, plot in titles.items()
    ]
    config = {**look.CONFIG, "background": var("paper"), "padding": 16}
    document = {"hconcat": plots, "spacing": 48, "config": config}
    return packed(vl_convert.svg_to_png(painted(vl_convert.vegalite_to_svg(document)), scale=2))


def packed(png: bytes) -> bytes:
    """The same picture in a third of the bytes: vl-convert writes quickly, not tightly."""
    data = zlib.compress(zlib.decompress(b"".join(body for kind, body in _chunks(png) if kind == b"IDAT")), 9)
    others = [(kind, body) for kind, body in _chunks(png) if kind not in (b"IDAT", b"IEND")]
    return _SIGNATURE + b"".join(_chunk(*each) for each in [*others, (b"IDAT", data), (b"IEND", b"")])


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_SIGNATURE)
    while place < len(png):
        length, kind = struct.unpack_from(">I4s", png, place)
        yield kind, png[place + 8 : place + 8 + length]
        place += 12 + length


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

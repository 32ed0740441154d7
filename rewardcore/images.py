"""An image as a data file or a trainer holds it, and as a request carries it: a data URL with the right MIME type.

`located` says without reading anything whether there can be an image at all; `data_url` reads it. PNG, JPEG, WebP and
GIF are sent byte for byte; anything else that Pillow reads becomes a PNG. Nothing is fetched from the network.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .failures import needs_extra

#: What is found: the image's bytes, its file, a data URL, or Pillow's image, of which nothing is known here.
Located = bytes | Path | str | Any

#: How each kind begins that every server takes.
_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
#: What a PNG can hold; other modes, such as CMYK, become RGB.
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")


def located(image: object, directory: Path) -> Located:
    """Where the image is; raises ValueError, in words that follow its place. Paths are relative to `directory`."""
    if isinstance(image, Mapping):  # as `datasets` gives what it has not decoded
        content, path = image.get("bytes"), image.get("path")
        if content is None and path is None:
            raise ValueError('holds neither "bytes" nor "path"')
        image = path if content is None else content
    if isinstance(image, bytes | bytearray | memoryview):
        if not len(image):
            raise ValueError("holds no bytes")
        return bytes(image)
    if isinstance(image, str | os.PathLike):
        image = os.fspath(image)
        if image.startswith("data:image/"):
            return image
        image = image.removeprefix("file://")
        if "://" in image[:12]:
            raise ValueError(f"is the address {image[:60]!r}, and nothing is fetched: give the file")
        file = directory / os.path.expanduser(image)
        if not file.is_file():
            raise ValueError(f"is {str(file)!r}, and there is no such file")
        return file
    if callable(getattr(image, "save", None)) and hasattr(image, "mode"):
        return image
    raise ValueError(f"is {type(image).__name__}, not a path, bytes or an image")


def data_url(image: Located) -> str:
    """Raises ValueError where it cannot be read, in words that follow its place."""
    if isinstance(image, str):
        return image
    if isinstance(image, Path):
        try:
            image = image.read_bytes()
        except OSError as error:
            raise ValueError(f"cannot be read ({error})") from None
    content = image if isinstance(image, bytes) else _as_png(image)
    kind = _kind(content)
    if kind is None:
        content, kind = _as_png(_decoded(content)), "image/png"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _kind(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _KINDS if content.startswith(beginning)), None)


def _decoded(content: bytes) -> Any:
    with needs_extra("data", "an image that is not PNG, JPEG, WebP or GIF"):
        from PIL import Image
    try:
        return Image.open(io.BytesIO(content))
    except Exception as error:  # whatever a decoder raises, it is about these bytes
        raise ValueError(f"is no image that can be read ({error})") from None


def _as_png(image: Any) -> bytes:
    written = io.BytesIO()
    try:
        (image if image.mode in _PNG_MODES else image.convert("RGB")).save(written, "PNG")
    except Exception as error:
        raise ValueError(f"cannot be written as a PNG ({error})") from None
    return written.getvalue()

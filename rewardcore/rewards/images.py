"""A trainer's images as an endpoint can be sent them: `{"type": "image", "image": …}` becomes a part with a data URL.

TRL and verl put images into the conversations that they roll out, decoded or by their path; a rubric shows what has a
URL. What a file or the dataset holds as bytes is sent as it is, an image in memory as PNG, which loses nothing and is
the same request every time. A part without its image is left for `Sample` to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..failures import ConfigurationError
from ..images import data_url, located
from ..sample import IMAGE_FIELDS


def sendable(conversation: Any) -> Any:
    """The conversation with each image in it as a URL; itself where it has none, or is none."""
    messages = _listed(conversation)
    sent = [_message(message) for message in messages]
    return sent if any(new is not old for new, old in zip(sent, messages, strict=True)) else conversation


def _message(message: Any) -> Any:
    parts = _listed(message.get("content")) if isinstance(message, Mapping) else []
    if not any(map(_is_image, parts)):
        return message
    return {**message, "content": [_part(part) if _is_image(part) else part for part in parts]}


def _listed(value: Any) -> list[Any]:
    """Messages or parts; nothing where there are none, and what is wrong with that is told by `Sample`."""
    is_list = isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1
    return list(value) if is_list and not isinstance(value, str) else []


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image" and _image_in(part) is not None


def _image_in(part: Mapping[str, Any]) -> Any:
    return next((part[name] for name in IMAGE_FIELDS if part.get(name) is not None), None)


def _part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "image_url", "image_url": {"url": _url(_image_in(part))}}


def _url(image: Any) -> str:
    if isinstance(image, str) and image.startswith(("http://", "https://")):
        return image
    try:
        return data_url(located(image, Path()))
    except ConfigurationError:  # what is missing is not the image's fault
        raise
    except ValueError as error:
        raise ConfigurationError(f"an image {error}: the judge cannot see it") from None

"""A sample: the one thing that is judged. It knows nothing of rubrics, endpoints or trainers.

What it is made of is checked when it is made, so that a wrong column is named where it came from, and not by every
rubric in its own way. Messages are checked for what is shown of them, and are otherwise kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .failures import ConfigurationError

Conversation = Sequence[Mapping[str, Any]]

#: Where a part of type `image` holds it, as TRL, verl and transformers write them: bytes before what was decoded from
#: them, which would have to be encoded again.
IMAGE_FIELDS = ("bytes", "image", "path", "url")

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_URL = re.compile(r"(?:https?://|data:)\S", re.IGNORECASE)
_MESSAGE = 'a message such as {"role": "user", "content": "…"}'
_IMAGE = 'give {"type": "image_url", "image_url": {"url": …}} with an http(s) or data URL'


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the response to judge, with whatever a rubric or a rule may want beside it.

    `prompt` is a text or a conversation: messages with `role` and `content`, which is a text or a list of parts of
    type `text` and `image_url`. So is `response`. A tuple or a numpy array of messages or parts becomes a list.
    Equal samples share one reply; those with another `draw` have one of their own.
    """

    prompt: str | Conversation
    response: str | Conversation
    ground_truth: str | None = None
    data_source: str = ""
    extra: Mapping[str, Any] | None = None
    draw: int = 0

    def __post_init__(self) -> None:
        # Nearly every sample is plain texts, and there are many: they pass with no call.
        if type(self.prompt) is not str:
            object.__setattr__(self, "prompt", _text_or_conversation(self.prompt, "prompt"))
        if type(self.response) is not str:
            object.__setattr__(self, "response", _text_or_conversation(self.response, "response"))
        if self.ground_truth is not None and not isinstance(self.ground_truth, str):
            raise _wrong("ground_truth", "a text or None; for a number, give str(42)", self.ground_truth)
        if not isinstance(self.data_source, str):
            raise _wrong("data_source", "a text", self.data_source)
        if self.extra is not None and type(self.extra) is not dict and not isinstance(self.extra, Mapping):
            raise _wrong("extra", "a mapping or None", self.extra)
        if type(self.draw) is not int or self.draw < 0:
            raise _wrong("draw", "a whole number of at least 0", self.draw)


def _text_or_conversation(value: object, place: str) -> str | list[Mapping[str, Any]]:
    if isinstance(value, str):
        return value
    messages = _listed(value, place, f"a text, or a list of messages, each {_MESSAGE}")
    if not messages:
        raise ConfigurationError(f"{place} is a conversation without messages; give at least one, or a text")
    return [_message(message, f"{place}[{index}]") for index, message in enumerate(messages)]


def _message(message: object, place: str) -> Mapping[str, Any]:
    if not isinstance(message, Mapping):
        raise _wrong(place, _MESSAGE, message)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not _WORD.fullmatch(role):
        raise _wrong(f"{place}.role", "a plain word such as user or assistant", role)
    calls = message.get("tool_calls")
    if calls is not None:
        calls = _listed(calls, f"{place}.tool_calls", "a list")
    if isinstance(content, str) or (content is None and calls and role == "assistant"):
        return message
    if content is None:
        raise _wrong(f"{place}.content", "a text or a list of parts; None only beside an assistant's tool_calls", None)
    parts = _listed(content, f"{place}.content", "a text or a list of parts")
    for index, part in enumerate(parts):
        _check_part(part, f"{place}.content[{index}]")
    return message if parts is content else {**message, "content": parts}


def _check_part(part: object, place: str) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or kind is None:
        raise _wrong(place, 'a part such as {"type": "text", "text": "…"}', part)
    if kind == "text":
        if not isinstance(part.get("text"), str):
            raise _wrong(f"{place}.text", "a text", part.get("text"))
    elif kind == "image_url":
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else None
        if not isinstance(url, str) or not _URL.match(url):
            raise ConfigurationError(f"{place} is an image without a URL that can be sent: {_IMAGE}")
    elif kind == "image" and any(part.get(name) is not None for name in IMAGE_FIELDS):
        whole = place.partition("[")[0]
        raise ConfigurationError(
            f"{place} holds an image, and a request carries its URL: rewardcore.rewards.images.sendable({whole}) makes"
            f" one of each, or {_IMAGE}"
        )
    elif kind == "image":
        raise ConfigurationError(f"{place} is a placeholder, with no image in {', '.join(IMAGE_FIELDS)}: {_IMAGE}")
    else:
        raise ConfigurationError(f"{place} is of type {str(kind)[:40]!r}; parts are of type text or image_url")


def _listed(value: object, place: str, wanted: str) -> list[Any]:
    """Any collection as a list, such as a numpy array; what is one already stays itself."""
    if isinstance(value, list):
        return value
    try:
        if isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray, Mapping)):
            return list(value)
    except TypeError:  # an array without dimensions has the methods, and no elements
        pass
    raise _wrong(place, wanted, value)


def _wrong(place: str, wanted: str, value: object) -> ConfigurationError:
    shown = "None" if value is None else f"{type(value).__name__} {value!r:.40}"
    return ConfigurationError(f"{place} must be {wanted}, not {shown}")

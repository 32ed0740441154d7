"""A conversation as a judge reads it: a transcript, in which no content can begin a turn.

Each turn follows a line such as `[user-TOKEN]`, with the token of its field. Texts, images and tool calls are shown;
a message's name, its ids and a model's separate reasoning are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import orjson

from ..sample import Conversation
from .rubric import Message

Piece = str | Message  # a text, or an image as a part of the judge's message
Turn = tuple[str, list[Piece]]  # a speaker, and what was said and shown


def turns_of(conversation: Conversation) -> list[Turn]:
    turns: list[Turn] = []
    for message in conversation:
        speaker, content, calls = message["role"], message.get("content"), message.get("tool_calls")
        if content is not None:
            said = [content] if isinstance(content, str) else [_piece(part) for part in content]
            turns.append((speaker, _joined(said, "\n")))
        if calls is not None and len(calls):
            turns.append((f"{speaker} tool_calls", [as_json(calls)]))  # no role has a space in it
    return turns


def plain_text(turns: list[Turn], speaker: str) -> str | None:
    """The one text that the speaker said, where that is all."""
    match turns:
        case [(who, [*said])] if who == speaker and not any(isinstance(piece, dict) for piece in said):
            return "".join(map(str, said))
    return None


def transcript(turns: list[Turn], token: str) -> str | list[Piece]:
    """One text; with images, texts and images in their order."""
    marked: list[Piece] = []
    for speaker, said in turns:
        marked += [f"\n[{speaker}-{token}]\n" if marked else f"[{speaker}-{token}]\n", *said]
    first, *rest = _joined(marked)
    return [first, *rest] if rest or not isinstance(first, str) else first


def as_parts(shown: Iterable[str | list[Piece]]) -> list[Message]:
    """A message's content where there are images: all text between two of them is one part."""
    pieces = chain.from_iterable([each] if isinstance(each, str) else each for each in shown)
    return [{"type": "text", "text": piece} if isinstance(piece, str) else piece for piece in _joined(pieces)]


def as_json(value: object) -> str:
    """The same text every time, whatever the order of its keys; raises TypeError where it is no JSON."""
    return orjson.dumps(value, default=_as_plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


def _as_plain(value: Any) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # numpy's arrays and numbers, as parquet gives them
        return value.tolist()
    raise TypeError  # which orjson puts into words


def _piece(part: Mapping[str, Any]) -> Piece:
    if part["type"] == "text":
        text: str = part["text"]
        return text
    return {
        "type": "image_url",
        "image_url": {name: value for name, value in part["image_url"].items() if value is not None},
    }


def _joined(pieces: Iterable[Piece], between: str = "") -> list[Piece]:
    """Neighbouring texts as one; empty ones, which some servers refuse as parts, are left out."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += between + piece
        elif piece:
            joined.append(piece)
    return joined

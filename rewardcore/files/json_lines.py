"""One line of JSON, there and back: strict, and exact. What cannot be written and read again unchanged is refused.

No `NaN`, no `Infinity`, no half of a surrogate pair, and a whole number of any size stays itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

import orjson

#: orjson makes floats of whole numbers from here on.
_LARGE = float(2**63)
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=lambda it: _text(it))


def parse(line: bytes) -> dict[str, Any]:
    """The line's object; a ValueError says what else it is."""
    try:
        value = orjson.loads(line.rstrip())  # a text that is not closed is one that ends, not one with a newline
    except orjson.JSONDecodeError as error:
        raise ValueError(f"is not valid JSON: {error.msg}, in column {error.colno}") from None
    if not isinstance(value, dict):
        raise ValueError(f'is {_kind(value)}, not an object such as {{"prompt": …}}')
    if any_float(value, lambda number: abs(number) >= _LARGE):
        return json.loads(line)  # type: ignore[no-any-return]  # slower, and keeps every digit
    return value


def line_of(document: Mapping[str, Any]) -> bytes:
    """With its newline. Dates and decimals become text; a ValueError or a TypeError says what no JSON can carry."""
    return _encoder.encode(document).encode() + b"\n"


def any_float(value: object, is_meant: Callable[[float], bool]) -> bool:
    """Whether there is such a float anywhere in it."""
    if isinstance(value, float):
        return is_meant(value)
    if isinstance(value, list):
        return any(any_float(item, is_meant) for item in value)
    return isinstance(value, dict) and any(any_float(item, is_meant) for item in value.values())


def _text(value: object) -> str:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__}, which JSON cannot carry")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds: dict[type, str] = {list: "a list", str: "a text", bool: "true or false"}
    return kinds.get(type(value), "a number")

"""Checks of arguments, so that the same mistake is told in the same words wherever it is made.

Each raises a ConfigurationError that names the argument, what it must be and what it is. What takes a sentence of its
own, or says what to do besides, is checked where the argument is taken.
"""

from __future__ import annotations

import sys
from typing import TypeGuard

from .failures import ConfigurationError


def is_number(value: object) -> TypeGuard[int | float]:
    """True and False are none, though Python counts them among them."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check(name: str, value: object, wanted: str, is_fine: bool) -> None:
    if not is_fine:
        raise ConfigurationError(f"{name} must be {wanted}, not {value!r:.40}")


def check_kind(name: str, value: object, wanted: str, kind: type) -> None:
    """Of a value that is better not shown, since it may be long or hold a key; None is fine."""
    if not isinstance(value, kind | None):
        raise ConfigurationError(f"{name} must be {wanted}, not {type(value).__name__}")


def check_whole(name: str, value: object, *others: str | None, least: int = 1, most: int | None = None) -> None:
    """A whole number, or one of the `others`, such as "auto" or None."""
    bounds = f"from {least} to {most}" if most else "above 0" if least == 1 else f"of at least {least}"
    is_whole = type(value) is int and least <= value <= (most or value)
    check(name, value, " or ".join([f"a whole number {bounds}", *map(_quoted, others)]), is_whole or value in others)


def check_seconds(name: str, value: object) -> None:
    check(name, value, "seconds above 0", is_number(value) and 0 < value <= sys.float_info.max)


def check_choice(name: str, value: object, *choices: str) -> None:
    check(name, value, " or ".join(map(_quoted, choices)), value in choices)


def _quoted(value: str | None) -> str:
    return "None" if value is None else f'"{value}"'

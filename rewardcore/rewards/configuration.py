"""One reader for every configuration: a dataclass, a trainer's keyword arguments, environment variables.

A field of a dataclass may name its variable with `variable(default, "NAME")`. What is given counts, then the
variable, then the default. A wrong value names the field, or the variable that it came from, and an unknown field the
nearest known one. Nothing here knows what is configured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, field, fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..failures import ConfigurationError

T = TypeVar("T")

_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def variable(default: Any, name: str) -> Any:
    """A field that the environment variable sets where nothing else does."""
    return field(default=default, metadata={"variable": name})


def read(kind: type[T], given: T | Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ) -> T:
    """A configuration of that kind. What is one already is taken as it is."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, Mapping | None):
        raise ConfigurationError(
            f"{kind.__name__} must be given as a mapping of its fields, not {type(given).__name__}"
        )
    known: dict[str, Field[Any]] = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    types, values = _types(kind), {}  # type: ignore[arg-type]  # a class is hashable
    for name, value in (given or {}).items():
        if name not in known:
            raise unknown(name, known, f"field of {kind.__name__}")
        values[name] = _converted(value, types[name], name)
    for name, each in known.items():
        source = each.metadata.get("variable")
        if name not in values and source and (text := environment.get(source, "").strip()):
            values[name] = _converted(text, types[name], source)
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            set_by = f", or set {source}" if source else ""
            raise ConfigurationError(f"{kind.__name__} needs {name}{set_by}")
    return kind(**values)


@cache
def _types(kind: Any) -> dict[str, Any]:
    """Once for each kind: it would be most of what a call with a single sample costs."""
    return get_type_hints(kind)


def unknown(name: str, known: Iterable[str], what: str) -> ConfigurationError:
    """Names the nearest known one, or else all of them."""
    known = list(known)
    nearest = get_close_matches(str(name), known, 1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(known)}"
    return ConfigurationError(f"{name} is no {what}; {hint}")


def _converted(value: Any, wanted: Any, name: str) -> Any:
    """Variables are texts, and so is much of what YAML overrides give; a number is never taken for a text."""
    kinds = get_args(wanted) if get_origin(wanted) in (Union, type(int | str)) else (wanted,)
    text = value.strip() if isinstance(value, str) else ""
    if bool in kinds and text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    literals = [word for each in kinds if get_origin(each) is Literal for word in get_args(each)]
    kinds = tuple(each for each in kinds if get_origin(each) is not Literal)
    if text.lower() in literals:
        return text.lower()
    if (value is None and type(None) in kinds) or type(value) in kinds or Any in kinds:
        return value
    if float in kinds and type(value) is int:
        return float(value)
    for number in (int, float):
        if number in kinds and text:
            try:
                return number(text)
            except ValueError:
                pass
    if any(get_origin(each) is not None or not isinstance(each, type) for each in kinds):
        return value  # a type that only whoever takes it can check
    if any(isinstance(value, each) for each in kinds) and type(value) is not bool:
        return value
    words = [_WORDS.get(each, each.__name__) for each in kinds if each is not type(None)]
    words += [f'"{word}"' for word in literals]
    raise ConfigurationError(f"{name} must be {' or '.join(words)}, not {value!r}")

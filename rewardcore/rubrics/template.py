"""A rubric made of a template, written in Python or read from a TOML file.

Substitution is one pass, so a response that holds `{ground_truth}` stays text; and the sample's fields sit between
delimiters with a token derived from their content, which a response cannot know and so cannot close.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from os import PathLike

from ..failures import ConfigurationError
from ..sample import Sample
from .parsing import parse_scale, parse_truth
from .rubric import Message

_FIELDS = ("prompt", "response", "ground_truth", "data_source", "token")
_FIELD = re.compile(r"\{(" + "|".join(_FIELDS) + r")\}")


@dataclass(frozen=True)
class TemplateRubric:
    """A template with {prompt}, {response}, {ground_truth}, {data_source} and {token}, and how its tag is read.

    `scale=(low, high)` reads a number and maps it to 0…1; `scale=None` reads `true` or `false`.
    """

    name: str
    template: str
    tag: str = "score"
    scale: tuple[float, float] | None = (1.0, 10.0)
    system: str = ""
    independent: bool = False
    _literals: list[str] = field(init=False, repr=False, compare=False)
    _pick: Callable[[tuple[str, ...]], tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", self.tag):
            raise ConfigurationError(f"rubric {self.name!r}: tag must be a plain word, not {self.tag!r}")
        if self.scale is not None and not 0.0 < self.scale[1] - self.scale[0] < math.inf:
            raise ConfigurationError(f"rubric {self.name!r}: scale must rise, as in [1, 10], not {list(self.scale)}")
        if "{response}" not in self.template:
            raise ConfigurationError(f"rubric {self.name!r}: template never shows {{response}}, so it judges nothing")
        object.__setattr__(self, "tag", self.tag.lower())
        # Literal text and field names alternate: even places are literal, odd places are fields.
        parts = _FIELD.split(self.template)
        places = (_FIELDS.index(part) if place % 2 else len(_FIELDS) + place // 2 for place, part in enumerate(parts))
        object.__setattr__(self, "_literals", parts[::2])
        object.__setattr__(self, "_pick", itemgetter(*places))  # out of the fields, followed by the literals

    def messages(self, sample: Sample) -> list[Message]:
        truth = sample.ground_truth
        shown = (sample.prompt, sample.response, "" if truth is None else truth, sample.data_source)
        token = hashlib.sha256("\0".join(shown).encode()).hexdigest()[:16]
        user: Message = {"role": "user", "content": "".join(self._pick((*shown, token, *self._literals)))}
        return [{"role": "system", "content": self.system}, user] if self.system else [user]

    def parse(self, text: str) -> float:
        if self.scale is None:
            return parse_truth(text, self.tag)
        low, high = self.scale
        return parse_scale(text, self.tag, low, high)


def load(path: str | PathLike[str]) -> TemplateRubric:
    """A rubric from a TOML file: `template`, and optionally `name`, `tag`, `scale`, `system`, `independent`."""
    import tomllib

    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"rubric file {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"rubric file {path} is not valid TOML: {error}") from error
    table.setdefault("name", str(path))
    if table.get("scale") == "truth":
        table["scale"] = None
    for key, value in table.items():
        if key not in _TOML_FIELDS:
            raise ConfigurationError(f"rubric file {path}: unknown field {key!r}; known are {', '.join(_TOML_FIELDS)}")
        if not _TOML_FIELDS[key](value):
            raise ConfigurationError(f"rubric file {path}: {key} = {value!r} is not {_TOML_WORDS[key]}")
    if "template" not in table:
        raise ConfigurationError(f"rubric file {path}: the field template is missing")
    if table.get("scale"):
        table["scale"] = tuple(table["scale"])
    try:
        return TemplateRubric(**table)
    except ConfigurationError as error:
        raise ConfigurationError(f"rubric file {path}: {error}") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_scale(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and len(value) == 2 and all(type(end) in (int, float) for end in value)


_TOML_FIELDS: dict[str, Callable[[object], bool]] = {
    "name": _is_text,
    "template": _is_text,
    "tag": _is_text,
    "system": _is_text,
    "scale": _is_scale,
    "independent": lambda value: isinstance(value, bool),
}
_TOML_WORDS = dict.fromkeys(["name", "template", "tag", "system"], "a text that is not empty") | {
    "scale": 'two numbers, as in [1, 10], or "truth"',
    "independent": "true or false",
}


def named(name: str) -> TemplateRubric:
    """A built-in rubric by its name, or one from a TOML file by its path."""
    from .built_in import BY_NAME

    if name in BY_NAME:
        return BY_NAME[name]
    if name.endswith(".toml"):
        return load(name)
    raise ConfigurationError(f"rubric {name!r} is none of {', '.join(BY_NAME)}, and no path of a .toml file")

"""A rubric made of a template, written in Python or read from a TOML file.

Substitution is one pass, so a response that holds `{ground_truth}` stays text. A field is closed by a delimiter with a
token derived from that field and those before it, which no content of it can know; and since nothing that stands
before a field depends on it, the responses to one prompt share every byte before the response, and a server's
prefix cache serves them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import sha256
from operator import attrgetter, itemgetter
from os import PathLike, fspath
from typing import Any, Literal

from ..failures import ConfigurationError, RubricFailed
from ..sample import Sample
from .parsing import parse_scale, parse_truth
from .rubric import Message
from .transcript import Turn, as_json, as_parts, plain_text, transcript, turns_of

_FIELDS = ("prompt", "response", "ground_truth", "data_source", "token", "extra.NAME", "prompt.token")
_FIELD = re.compile(
    r"\{((?:prompt|response|ground_truth|data_source)(?:\.token)?|token|extra\.[A-Za-z][A-Za-z0-9_-]*)\}"
)
#: The token that closes a field, by the name under which it may be shown again.
_TOKEN_OF = {f"{name}.token": name for name in ("prompt", "response", "ground_truth", "data_source")}
_LIKE_A_FIELD = re.compile(r"\{([^\W\d]\w*(?:\.[\w-]+)*)\}")
_IN_TWO_BRACES = re.compile(r"\{\{\s*[^\W\d][\w.-]*\s*\}\}")
#: Whose only message is the same as a plain text.
_SPEAKERS = {"prompt": "user", "response": "assistant"}


@dataclass(frozen=True)
class TemplateRubric:
    """A template with {prompt}, {response}, {ground_truth}, {data_source}, {extra.NAME} and {token}, and its tag.

    `scale=(low, high)` reads a number and maps it to 0…1; `scale=None` reads `true` or `false`. `higher_is` says what
    a high score means. A {token} after a field closes it: its value is derived from every field shown so far. Any
    other one has the value of the next that closes, or of the last, so that both ends of a field may carry one.
    {prompt.token} is the one that closes the prompt, wherever it stands; so for every field.
    """

    name: str
    template: str
    tag: str = "score"
    scale: tuple[float, float] | None = (1.0, 10.0)
    system: str = ""
    higher_is: Literal["better", "worse"] = "better"
    _fields: list[str] = field(init=False, repr=False, compare=False)
    _literals: list[str] = field(init=False, repr=False, compare=False)
    _values: Callable[[Sample], tuple[Any, ...]] = field(init=False, repr=False, compare=False)
    _pick: Callable[[list[Any]], tuple[Any, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scale: object = self.scale
        if scale == "truth":  # as TOML says it, which has no None
            object.__setattr__(self, "scale", None)
        if complaint := self._complaint():
            raise ConfigurationError(f"rubric {self.name!r:.80}: {complaint}")
        object.__setattr__(self, "scale", self.scale and tuple(self.scale))
        object.__setattr__(self, "tag", self.tag.lower())
        # Literal text and names alternate: even places are literal, odd places are fields and tokens.
        parts = _FIELD.split(self.template)
        literals, names = parts[::2], parts[1::2]
        fields: list[str] = []
        # Every field has a token, made after it; a {token} that closes takes that of the last new field before it.
        closing: dict[int, int] = {}
        is_open = False
        for place, name in enumerate(names):
            if name == "token":
                if is_open:
                    closing[place] = len(fields) - 1
                is_open = False
            elif name not in _TOKEN_OF:
                is_open = True
                fields += [name] if name not in fields else []
        last = max(closing.values(), default=len(fields) - 1)
        if len(fields) == 1:
            fields.append("data_source")  # never shown: of one name alone, the getter below would give no tuple
        places = [2 * len(fields)]
        for place, name in enumerate(names):
            token = next((closing[other] for other in closing if other >= place), last)
            if name in _TOKEN_OF:
                token = fields.index(_TOKEN_OF[name])
            is_field = name in fields
            places += [fields.index(name) if is_field else len(fields) + token, 2 * len(fields) + place + 1]
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_literals", literals)
        object.__setattr__(self, "_values", attrgetter(*(name.split(".")[0] for name in fields)))
        object.__setattr__(self, "_pick", itemgetter(*places))  # out of the fields, their tokens and the literals

    def _complaint(self) -> str | None:
        for name, (is_right, wanted) in _WANTED.items():
            if not is_right(value := getattr(self, name)):
                return f"{name} must be {wanted}, not {value!r:.40}"
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", self.tag):
            return f"tag must be a plain word, not {self.tag!r}"
        if self.scale is not None and not 0.0 < self.scale[1] - self.scale[0] < math.inf:
            return f"scale must rise, as in [1, 10], not {list(self.scale)}"
        if self.higher_is not in ("better", "worse"):
            return f'higher_is must be "better" or "worse", not {self.higher_is!r}'
        if doubled := _IN_TWO_BRACES.search(self.template):
            return f"template has {doubled[0]}; write a field in single braces, and other braces as they should stand"
        for name in _LIKE_A_FIELD.findall(self.template):
            if not _FIELD.fullmatch(f"{{{name}}}"):
                known = dict.fromkeys([*get_close_matches(name, _FIELDS, 1), *_FIELDS])
                listing = ", ".join(f"{{{each}}}" for each in known)
                return f"template shows {{{name}}}, no field: known are {listing}; as a text, write {{ {name} }}"
        for token, name in _TOKEN_OF.items():
            if f"{{{token}}}" in self.template and f"{{{name}}}" not in self.template:
                return f"template shows {{{token}}}, but never {{{name}}}"
        if "{response}" not in self.template:
            return "template never shows {response}, so it judges nothing"
        if shown := _FIELD.search(self.system):
            return f"system is the same for every sample and shows no fields; move {shown[0]} to template"
        if f"<{self.tag}>".lower() not in (self.template + self.system).lower():
            return f"template never shows its tag, so no judge would write it; ask for <{self.tag}>X</{self.tag}>"
        return None

    def messages(self, sample: Sample) -> list[Message]:
        """Raises RubricFailed where the sample has not what the template shows: nothing is judged without it."""
        shown = self._values(sample)
        known: list[Any] = [*shown]  # then the tokens, then the literals
        digest = sha256()
        for value in shown:
            turns = None
            if type(value) is not str:
                place = len(known) - len(shown)
                value, turns = self._read(self._fields[place], value)
                known[place] = value
            digest.update(value.encode())
            token = digest.hexdigest()[:16]
            known.append(token)
            if turns is not None:
                known[place] = transcript(turns, token)
        known += self._literals
        pieces = self._pick(known)
        content: str | list[Message]
        try:
            content = "".join(pieces)
        except TypeError:  # there are images among them
            content = as_parts(pieces)
        user: Message = {"role": "user", "content": content}
        return [{"role": "system", "content": self.system}, user] if self.system else [user]

    def _read(self, name: str, value: Any) -> tuple[str, list[Turn] | None]:
        """What is no plain text: as a text, or as turns with the text that stands for them in the token."""
        if name.startswith("extra."):
            value = None if value is None else value.get(name.removeprefix("extra."))
            try:
                value = value if value is None or isinstance(value, str) else as_json(value)
            except TypeError as error:
                raise RubricFailed(f"rubric {self.name!r} shows {{{name}}}, which is no JSON here: {error}") from error
        if value is None:
            raise RubricFailed(
                f"rubric {self.name!r} shows {{{name}}}, and this sample has none: give it one, or judge it with "
                "a rubric that does not show it"
            )
        if isinstance(value, str):
            return value, None
        turns = turns_of(value)
        text = plain_text(turns, _SPEAKERS[name])
        return (as_json(turns), turns) if text is None else (text, None)

    def parse(self, text: str) -> float:
        if self.scale is None:
            return parse_truth(text, self.tag)
        low, high = self.scale
        return parse_scale(text, self.tag, low, high)


def load(path: str | PathLike[str]) -> TemplateRubric:
    """A rubric from a TOML file: `template`, and optionally what else a `TemplateRubric` has."""
    import tomllib

    if not isinstance(path, str | PathLike):  # a number would be taken for an open file, and closed
        raise ConfigurationError(f"a rubric's file must be a path, not {path!r:.40}")
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"rubric file {path} is not valid TOML: {error}") from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"rubric file {path}: {getattr(error, 'strerror', None) or error}") from error
    table.setdefault("name", str(path))
    for key in table:
        if key not in _WANTED:
            raise ConfigurationError(f"rubric file {path}: unknown field {key!r}; known are {', '.join(_WANTED)}")
    if "template" not in table:
        raise ConfigurationError(f"rubric file {path}: the field template is missing")
    try:
        return TemplateRubric(**table)
    except ConfigurationError as error:
        raise ConfigurationError(f"rubric file {path}: {error}") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_scale(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list | tuple) and len(value) == 2 and all(type(end) in (int, float) for end in value)


#: What each field must be, in Python and in TOML alike, before anything is asked of its content.
_WANTED: dict[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(("name", "template", "tag", "higher_is"), (_is_text, "a text that is not empty")),
    "system": (lambda value: isinstance(value, str), "a text"),
    "scale": (_is_scale, 'two numbers, as in [1, 10], or "truth"'),
}


def named(name: str | PathLike[str]) -> TemplateRubric:
    """A built-in rubric by its name, or one from a TOML file by its path."""
    from .built_in import BY_NAME

    if not isinstance(name, str | PathLike):
        raise ConfigurationError(f"a rubric's name must be a text or the path of a .toml file, not {name!r:.40}")
    name = fspath(name)
    if name in BY_NAME:
        return BY_NAME[name]
    if name.endswith(".toml"):
        return load(name)
    raise ConfigurationError(f"rubric {name!r} is none of {', '.join(BY_NAME)}, and no path of a .toml file")

"""From a row to a problem: its text, its images, and the number that is the truth. A row that is none says why.

`problem_of` reads no image, so that every row can be looked at before a server is started; `Problem.prompt` does. Not
for how a model is asked: that is rollouts.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..arguments import is_number
from ..failures import ConfigurationError, Unparsed
from ..files.rows import BadRow, Rows
from ..images import Located, data_url, located
from ..progress import Tell
from ..rubrics.transcript import Piece, as_parts
from ..sample import Conversation
from .answers import predicted_value
from .plan import Plan

MARK = "<image>"
#: Bad rows that are shown; the rest is counted. And after how many rows somebody is told how far it is.
_SHOWN, _TOLD = 3, 1000


class Unusable(ValueError):
    """A row that is no problem; the words say what is wrong with which field."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is asked, and its answer. `place` is where it stands, for people; `index` counts rows from 0."""

    index: int
    place: str
    text: str
    truth: float
    images: tuple[Located, ...] = field(default=(), repr=False)

    def prompt(self) -> str | Conversation:
        """The images stand where the text marks them; without a mark before it. Raises Unusable where one is broken."""
        if not self.images:
            return self.text
        parts: list[Piece] = []
        for number, image in enumerate(self.images):
            try:
                parts.append({"type": "image_url", "image_url": {"url": data_url(image)}})
            except ValueError as error:
                raise Unusable(f"images[{number}] {error}") from None
        texts = self.text.split(MARK)
        if len(texts) == 1:
            pieces = [*parts, self.text]
        else:
            pieces = [texts[0]]
            for part, text in zip(parts, texts[1:], strict=True):
                pieces += [part, text]
        return [{"role": "user", "content": as_parts([pieces])}]


def problem_of(index: int, place: str, fields: Mapping[str, Any], directory: Path) -> Problem:
    """Raises Unusable. Paths of images are relative to `directory`."""
    text = fields.get("problem")
    if not isinstance(text, str) or not text.strip():
        raise Unusable(_wanted("problem", "a text that is not empty", text, fields))
    images = tuple(_images(fields.get("images"), directory))
    marks = text.count(MARK)
    if marks and marks != len(images):
        raise Unusable(f"problem marks {marks} images with {MARK}, and images holds {len(images)}")
    return Problem(index, place, text, _truth(fields), images)


def _truth(fields: Mapping[str, Any]) -> float:
    answer = fields.get("answer")
    if isinstance(answer, str):
        try:
            return predicted_value(answer)
        except Unparsed:
            pass
    elif is_number(answer):
        try:
            if math.isfinite(truth := float(answer)):
                return truth
        except OverflowError:
            pass
    raise Unusable(_wanted("answer", "a finite number", answer, fields))


def _images(images: Any, directory: Path) -> Sequence[Located]:
    if images is None:
        return ()
    if isinstance(images, str | bytes | Mapping) or not hasattr(images, "__len__"):
        images = [images]
    found = []
    for number, image in enumerate(images):
        try:
            found.append(located(image, directory))
        except ValueError as error:
            raise Unusable(f"images[{number}] {error}") from None
    return found


def _wanted(name: str, what: str, value: object, fields: Mapping[str, Any]) -> str:
    if name not in fields:
        return f"there is no field {name!r}; the row has {', '.join(map(repr, fields)) or 'none'}"[:200]
    return f"{name} must be {what}, not {type(value).__name__} {value!r:.40}"


class Problems:
    """The rows that no journal holds yet, as problems, however often they are gone through.

    `look_at_all` goes through them once before anything is asked, reads no image, and counts what is `left` to ask and
    the `bad_rows`; `complaint` shows the first of those.
    """

    def __init__(self, rows: Rows, directory: Path, is_done: Callable[[int], bool], plan: Plan) -> None:
        self.name = rows.name
        self.left = self.bad_rows = 0
        self._rows, self._directory, self._is_done = rows, directory, is_done
        self._max_data, self._may_skip = plan.max_data, plan.skip_bad_rows
        self._shown: list[str] = []

    def look_at_all(self, tell: Tell = lambda *_: None) -> None:
        """Raises ConfigurationError where there are bad rows, and nobody said that they may be skipped."""
        self.left = self.bad_rows = 0
        for number, found in enumerate(self._read()):
            if number % _TOLD == 0:
                tell(number, None, "")
            if isinstance(found, Problem):
                self.left += 1
            else:
                self._is_bad(found)
        self._refuse()

    def __iter__(self) -> Iterator[Problem]:
        return (found for found in self._read() if isinstance(found, Problem))

    def is_broken(self, problem: Problem, error: Unusable) -> None:
        """Which nobody saw before it was read; raises ConfigurationError unless it may be skipped."""
        self._is_bad(f"{problem.place}: {error}")
        self._refuse()

    @property
    def complaint(self) -> str:
        rows = "1 bad row" if self.bad_rows == 1 else f"{self.bad_rows} bad rows"
        more = f"; and {self.bad_rows - len(self._shown)} more" if self.bad_rows > len(self._shown) else ""
        return f"{rows} in {self.name}: {'; '.join(self._shown)}{more}"

    def _read(self) -> Iterator[Problem | str]:
        """Each row's problem, or in words why it is none."""
        for row in self._rows.read(self._is_done):
            if self._max_data is not None and row.index >= self._max_data:
                return
            if isinstance(row, BadRow):
                yield str(row)
                continue
            try:
                yield problem_of(row.index, row.place, row.fields, self._directory)
            except Unusable as error:
                yield f"{row.place}: {error}"

    def _is_bad(self, complaint: str) -> None:
        self.bad_rows += 1
        if len(self._shown) < _SHOWN:
            self._shown.append(complaint)

    def _refuse(self) -> None:
        if self.bad_rows and not self._may_skip:
            raise ConfigurationError(f"{self.complaint}. Mend them, or leave them out with --skip-bad-rows")

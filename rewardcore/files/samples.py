"""How a row becomes a sample, and comes out again with its verdict. Columns that no sample has are kept as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ..failures import ConfigurationError, Failure
from ..rubrics import Message, Rubric
from ..rubrics.rubric import ask
from ..sample import Sample
from ..verdict import Verdict
from . import json_lines
from .rows import BadRow, Row

#: The column that a row comes out with.
VERDICT = "verdict"
_names = Verdict.__slots__
_values = attrgetter(*_names)


def sample_of(row: Row) -> Sample | BadRow:
    """Of `prompt`, `response` and, if it has them, `ground_truth` (a number becomes text), `data_source`, `extra`."""
    fields = row.fields
    for name in ("prompt", "response"):
        if name not in fields:
            return BadRow(row.index, row.place, f"has no {name!r}; its columns are {', '.join(fields) or 'none'}")
    if VERDICT in fields:
        return BadRow(row.index, row.place, f"has a column {VERDICT!r}, which would be overwritten; rename it")
    truth, source = fields.get("ground_truth"), fields.get("data_source")
    if isinstance(truth, (int, float)):
        truth = json.dumps(truth)
    try:
        return Sample(
            fields["prompt"], fields["response"], truth, "" if source is None else source, fields.get("extra")
        )
    except ConfigurationError as error:
        return BadRow(row.index, row.place, f"cannot be judged: {error}")


def judged(row: Row, verdict: Verdict) -> dict[str, Any]:
    return row.fields | {VERDICT: dict(zip(_names, _values(verdict), strict=True))}


@dataclass(slots=True)
class Survey:
    """What is there to be judged, before anything is sent: counted, and each row tried but for the sending.

    `bad` has the indices of rows that cannot be judged, `characters` is how long the messages of the others are.
    """

    rows: int = 0
    bad: set[int] = field(default_factory=set)
    first_bad: BadRow | None = None
    last_bad: BadRow | None = None  # where a file breaks off, the break
    characters: int = 0
    first: tuple[Row, list[Message]] | None = None

    def add(self, row: Row | BadRow, rubric: Rubric) -> None:
        tried = self._try(row, rubric) if isinstance(row, Row) else row
        if isinstance(tried, BadRow):
            self.bad.add(row.index)
            self.first_bad, self.last_bad = self.first_bad or tried, tried
        else:
            self.rows += 1

    def _try(self, row: Row, rubric: Rubric) -> BadRow | None:
        sample = sample_of(row)
        if isinstance(sample, BadRow):
            return sample
        try:
            messages = ask(rubric, sample)
        except Failure as failure:
            return BadRow(row.index, row.place, f"cannot be judged: {failure}")
        for name, value in row.fields.items():
            try:
                json_lines.line_of({name: value})
            except (TypeError, ValueError) as error:
                return BadRow(row.index, row.place, f"cannot be written again: {name!r} holds {error}; leave it out")
        self.characters += sum(len(text) for message in messages for text in texts_of(message))
        self.first = self.first or (row, messages)
        return None


def texts_of(message: Message) -> list[str]:
    """What of a message is text; an image in it is told as one."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [str(part.get("text", f"({part.get('type')})")) for part in parts if isinstance(part, dict)]

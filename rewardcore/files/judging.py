"""A whole file judged, row by row, in bounded memory, by a run that may be killed and goes on.

While it runs, finished rows are in `OUT.partial`, a journal. In the end OUT is written whole, in input order, and
`OUT.run.json` beside it says what it was made with and how it went; then the journal goes, unless there is something to
try again: `timeout` and `failed` are in OUT, and running the same again asks for them alone and replaces OUT.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import orjson

from ..clock import SYSTEM_CLOCK
from ..failures import ConfigurationError, RewardcoreError, ends_run
from ..judge import Judge
from ..notices import say
from ..progress import Tell
from ..rubrics import Rubric
from ..sample import Sample
from ..stats import Stats
from ..verdict import Verdict
from . import json_lines
from .atomic import put_aside, write_atomically
from .journal import Journal, differences
from .rows import Row, Rows, Skip
from .samples import VERDICT, Survey, judged, sample_of
from .summary import TRIED_AGAIN, Summary

#: So many rows in a row without a reply, or as many as may fail: whatever is wrong, more rows will not mend it.
_HOPELESS = 256
_TELL_SECONDS = 0.1
#: In a line of the journal: the last field, which is a line of OUT.
_ROW = "row"
_WAY_OUT = "give another output, or --no-resume to begin anew (it is then kept under another name)"


def partial_of(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def check_output(rows: Rows, out: Path) -> None:
    """Nobody's directory, and not the input itself, is put aside for OUT."""
    if out.is_dir():
        raise ConfigurationError(f"{out} is a directory; give a file as the output")
    if rows.path is not None and out.exists() and out.samefile(rows.path):
        raise ConfigurationError(f"{out} is the input itself; give another output")


def finished_before(out: Path, configuration: Mapping[str, Any]) -> dict[str, Any] | None:
    """The summary of the run that has made OUT, if it is this one and there is nothing left to do; None if there is.

    Raises where OUT is anything else: nobody's file is overwritten.
    """
    if not out.exists():
        return None
    try:
        record = json_lines.parse(_record_of(out).read_bytes())
        made_with, summary = record["configuration"], record["summary"]
    except (OSError, ValueError, KeyError):
        raise ConfigurationError(
            f"{out} exists, and {_record_of(out).name} does not say what made it; {_WAY_OUT}"
        ) from None
    if made_with != _as_read(configuration):
        what = differences(made_with, _as_read(configuration))
        raise ConfigurationError(f"{out} exists, and is of another run: {what}; {_WAY_OUT}")
    return None if partial_of(out).exists() else summary


class FileRun:
    """`check`, `judge` and `finish`, in this order; a context manager. `resumed` rows were done before it began.

    With `resume=False` whatever is there is kept under another name.
    """

    def __init__(
        self,
        rows: Rows,
        out: Path,
        configuration: Mapping[str, Any],
        *,
        resume: bool = True,
        skip_bad_rows: bool = False,
        max_failures: int = 0,
    ) -> None:
        check_output(rows, out)
        self._journal = Journal(partial_of(out), configuration, resume)
        if not resume:
            put_aside(out, _record_of(out))
        self._rows = rows
        self._out = out
        self._configuration = configuration
        self._skip_bad_rows = skip_bad_rows
        self._most_in_vain = max(_HOPELESS, max_failures)
        self._survey = Survey()
        self._stopped: RewardcoreError | None = None
        self.resumed = len(self._journal)

    def check(self, rubric: Rubric, tell: Tell) -> Survey:
        """Try every row that is not done, but for the sending; raises where one is bad and none is to be skipped."""
        self._survey = survey = survey_of(self._rows, rubric, tell, self._journal)
        if survey.bad and not self._skip_bad_rows:
            more = f", and {len(survey.bad) - 1:,} more are bad" if len(survey.bad) > 1 else ""
            raise ConfigurationError(f"{survey.first_bad}{more}; nothing was sent: mend it, or give --skip-bad-rows")
        if survey.bad:
            last = f"; the last: {survey.last_bad}" if len(survey.bad) > 1 else ""
            say(logging.WARNING, "%d bad rows are skipped, the first: %s%s", len(survey.bad), survey.first_bad, last)
        return survey

    def judge(self, judge: Judge, tell: Tell) -> None:
        """Every row that is not done; each is in the journal when its verdict is there."""
        waiting: dict[int, Row] = {}
        now_and_then, total, without_score = _NowAndThen(tell), self.resumed + self._survey.rows, 0
        in_vain, has_replied = 0, False
        with contextlib.closing(judge.stream(self._samples(waiting))) as stream:
            for done, (number, verdict) in enumerate(stream, start=self.resumed + 1):
                row, is_final = waiting.pop(number), verdict.status not in TRIED_AGAIN
                in_vain = 0 if is_final else in_vain + 1
                has_replied = has_replied or ((is_final or bool(verdict.text)) and not verdict.cached)
                if ends_run(verdict, has_replied):
                    self._stop(RewardcoreError(verdict.error))
                    continue  # whoever is on the wire may have been paid for
                self._journal.append(row.index, {_ROW: judged(row, verdict)}, is_final)
                without_score += verdict.score is None
                now_and_then(done, total, f"{without_score:,} without a score" if without_score else "")
                if in_vain > self._most_in_vain:
                    why = f"the last {in_vain} rows had no reply, the latest: {verdict.error}"
                    self._stop(RewardcoreError(f"{why} (--max-failures allows more)"))
                    break  # and does not wait for more of that
        if self._stopped is not None:
            raise type(self._stopped)(f"{self._stopped}; {self.words}")

    def finish(self, stats: Stats, tell: Tell) -> dict[str, Any]:
        """Write OUT, and return the summary of the whole run, all its lives together."""
        finished_before(self._out, self._configuration)  # somebody may have put a file there meanwhile
        summary, now_and_then, total = Summary(), _NowAndThen(tell), self.resumed + self._survey.rows
        with write_atomically(self._out) as file:
            for written, line in enumerate(self._journal.in_order(), start=1):
                summary.add(Verdict(**orjson.loads(line)[_ROW][VERDICT]))
                file.write(_row_in(line))
                now_and_then(written, total, "")
            document = summary.document(stats, self.resumed, len(self._survey.bad))
            with write_atomically(_record_of(self._out)) as beside:  # first: OUT is never there without it
                record = {"configuration": _as_read(self._configuration), "summary": document}
                beside.write(orjson.dumps(record, option=orjson.OPT_INDENT_2))
        if not document["to_try_again"]:
            self._journal.remove()
        return document

    @property
    def words(self) -> str:
        """What there is, and how to go on."""
        if not len(self._journal):
            return "no row is done"
        if not self._journal.path.exists():
            return f"all rows are done, and are in {self._out}"
        return f"{len(self._journal):,} rows are done and kept in {self._journal.path}: run the same again to go on"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            error.add_note(self.words if len(self._journal) else f"{self.words}: run the same again")
        if self._journal.is_empty:
            self._journal.remove()
        self._journal.close()

    def _samples(self, waiting: dict[int, Row]) -> Iterator[Sample]:
        """Those that are not done, each numbered as the stream does, until there is a reason to stop."""
        number = 0
        for row in self._rows.read(lambda index: index in self._journal or index in self._survey.bad):
            if self._stopped is not None:
                return
            sample = sample_of(row) if isinstance(row, Row) else row
            if isinstance(sample, Sample) and isinstance(row, Row):
                waiting[number] = row
                number += 1
                yield sample
            else:  # it was fine when the rows were checked
                self._stop(ConfigurationError(f"the file has changed: {sample}"))

    def _stop(self, why: RewardcoreError) -> None:
        """No further row is taken; the first reason counts."""
        self._stopped = self._stopped or why


def survey_of(rows: Rows, rubric: Rubric, tell: Tell, skip: Skip = ()) -> Survey:
    survey, now_and_then = Survey(), _NowAndThen(tell)
    for looked_at, row in enumerate(rows.read(skip), start=1):
        survey.add(row, rubric)
        now_and_then(looked_at, None, f"{len(survey.bad):,} bad" if survey.bad else "")
    return survey


class _NowAndThen:
    """Tells ten times a second at most, and at the end: a bar costs more than a row."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._next = 0.0

    def __call__(self, done: int, total: int | None, note: str) -> None:
        now = SYSTEM_CLOCK.now()
        if now >= self._next or done == total:
            self._next = now + _TELL_SECONDS
            self._tell(done, total, note)


def _row_in(line: bytes) -> bytes:
    """The bytes of OUT's line, as they stand in the journal's."""
    start = line.index(b'"%s":' % _ROW.encode()) + len(_ROW) + 3
    return line[start:-2] + b"\n"


def _record_of(out: Path) -> Path:
    return out.with_name(out.name + ".run.json")


def _as_read(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """As it is after it was written: a tuple has become a list."""
    return json_lines.parse(json_lines.line_of(configuration))

"""A whole file judged: what the run itself decides, with a judge that says what the test wants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import rewardcore as rc
from rewardcore.failures import ConfigurationError, RewardcoreError
from rewardcore.files.json_lines import line_of
from rewardcore.files.judging import FileRun, finished_before
from rewardcore.files.rows import open_rows
from rewardcore.rubrics import QUALITY
from rewardcore.stats import Stats
from rewardcore.verdict import Verdict

CONFIGURATION = {"model": "judge", "scale": (1, 10)}
OK = Verdict("ok", 0.5, "<score>5</score>", attempts=1)
DENIED = Verdict("failed", error="Denied: judge.test answered 401")
WRONG_PATH = Verdict("failed", error="WrongPath: judge.test answered 404", attempts=1)
TIMEOUT = Verdict("timeout", error="DeadlinePassed: not judged before the deadline")


class Judge:
    """Says what it is told of each sample's response, a few samples behind the one it has taken last."""

    def __init__(self, says: Callable[[str], Verdict], ahead: int = 8) -> None:
        self._says = says
        self._ahead = ahead
        self.taken = 0

    def stream(self, samples: Iterable[rc.Sample]) -> Iterator[tuple[int, Verdict]]:
        waiting: list[tuple[int, rc.Sample]] = []
        for number, sample in enumerate(samples):
            self.taken += 1
            waiting.append((number, sample))
            if len(waiting) > self._ahead:
                yield self._verdict(*waiting.pop(0))
        yield from (self._verdict(*each) for each in waiting)

    def _verdict(self, number: int, sample: rc.Sample) -> tuple[int, Verdict]:
        return number, self._says(str(sample.response))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"".join(line_of({"prompt": "p", "response": str(number)}) for number in range(1000)))
    return path


def quietly(*_: object) -> None:
    pass


def life(source: Path, says: Callable[[str], Verdict], **options: Any) -> tuple[dict[str, Any], Judge]:
    """One run of the command, without the command: the summary, and the judge that it had."""
    judge = Judge(says)
    with FileRun(open_rows(str(source)), out_of(source), CONFIGURATION, **options) as run:
        run.check(QUALITY, quietly)
        run.judge(judge, quietly)  # type: ignore[arg-type]
        return run.finish(Stats(), quietly), judge


def out_of(source: Path) -> Path:
    return source.with_name("out.jsonl")


def statuses(source: Path) -> list[str]:
    return [orjson.loads(line)["verdict"]["status"] for line in out_of(source).read_bytes().splitlines()]


def test_once_the_endpoint_turns_us_away_no_row_is_taken_and_none_that_was_answered_is_lost(source: Path) -> None:
    judge = Judge(lambda response: DENIED if response == "100" else OK)
    run = FileRun(open_rows(str(source)), out_of(source), CONFIGURATION)
    with (
        run,
        pytest.raises(RewardcoreError, match=r"^Denied: .* 401; 108 rows are done and kept in .*partial: run the"),
    ):
        run.judge(judge, quietly)  # type: ignore[arg-type]
    assert judge.taken == 109
    summary, judge = life(source, lambda _: OK)
    assert (summary["resumed"], judge.taken) == (108, 892)


@pytest.mark.parametrize(("first", "ends"), [(WRONG_PATH, True), (OK, False)])
def test_a_wrong_path_ends_a_run_that_has_had_no_reply_and_no_other(source: Path, first: Verdict, ends: bool) -> None:
    def says(response: str) -> Verdict:
        return first if response == "0" else WRONG_PATH if response == "50" else OK

    if ends:
        with pytest.raises(RewardcoreError, match="WrongPath"):
            life(source, says)
    else:
        assert life(source, says)[0]["statuses"] == {"ok": 999, "failed": 1}


def test_replies_from_the_cache_do_not_say_that_the_endpoint_is_there(source: Path) -> None:
    cached = Verdict("ok", 0.5, cached=True)
    with pytest.raises(RewardcoreError, match="WrongPath"):
        life(source, lambda response: WRONG_PATH if response == "50" else cached)


def test_rows_that_had_no_reply_are_tried_again_and_only_those(source: Path) -> None:
    first, _ = life(source, lambda response: TIMEOUT if int(response) % 10 == 3 else OK)
    assert (first["to_try_again"], first["without_score"]) == (100, 100)
    assert statuses(source)[:5] == ["ok", "ok", "ok", "timeout", "ok"]
    assert finished_before(out_of(source), CONFIGURATION) is None
    second, judge = life(source, lambda response: TIMEOUT if response == "3" else OK)
    assert (second["resumed"], second["to_try_again"], judge.taken) == (900, 1, 100)
    third, judge = life(source, lambda _: OK)
    assert (third["resumed"], third["to_try_again"], judge.taken) == (999, 0, 1)
    assert statuses(source) == ["ok"] * 1000
    assert finished_before(out_of(source), CONFIGURATION) == third


def test_an_endpoint_that_has_died_is_not_asked_for_every_row(source: Path) -> None:
    def says(response: str) -> Verdict:
        return OK if int(response) < 100 else TIMEOUT

    with pytest.raises(RewardcoreError, match=r"the last 257 rows had no reply, .*; 100 rows are done and kept"):
        life(source, says)
    assert not out_of(source).exists()
    assert life(source, says, max_failures=900)[0]["statuses"] == {"timeout": 900, "ok": 100}


def test_a_row_that_has_gone_bad_since_it_was_checked_ends_the_run_there(source: Path) -> None:
    judge = Judge(lambda _: OK)
    run = FileRun(open_rows(str(source)), out_of(source), CONFIGURATION)
    with run:
        run.check(QUALITY, quietly)
        lines = source.read_bytes().splitlines(keepends=True)
        source.write_bytes(b"".join([*lines[:500], b"[]\n", *lines[501:]]))
        with pytest.raises(ConfigurationError, match=r"changed: line 501 of in.jsonl is a list.*; 500 rows are done"):
            run.judge(judge, quietly)  # type: ignore[arg-type]
    assert judge.taken == 500


@pytest.mark.parametrize("rows", [0, 1])
def test_a_file_of_hardly_any_rows_comes_out_whole(source: Path, rows: int) -> None:
    source.write_bytes(b'{"prompt": "p", "response": "r"}\n' * rows)
    summary, _ = life(source, lambda _: OK)
    assert summary["rows"] == rows
    assert statuses(source) == ["ok"] * rows
    assert sorted(each.name for each in source.parent.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.run.json"]


class Killed(BaseException):
    """What SIGKILL would do, at a chosen step."""


@pytest.mark.parametrize("step", range(7))
def test_an_end_at_any_step_of_the_finish_leaves_a_whole_output_or_none(
    source: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Files are renamed and removed one after the other; the next life finds what is there, and ends as it should."""
    deeds = itertools.count()

    def until_killed(method: Callable[..., Any]) -> Callable[..., Any]:
        def deed(path: Path, *arguments: Any, **options: Any) -> Any:
            if path.name.endswith(".tmp") and method.__name__ == "unlink":
                return method(path, *arguments, **options)  # what it had written beside it; a kill would leave it
            if next(deeds) == step:
                raise Killed
            return method(path, *arguments, **options)

        return deed

    monkeypatch.setattr(Path, "replace", until_killed(Path.replace))
    monkeypatch.setattr(Path, "unlink", until_killed(Path.unlink))
    is_killed = False
    try:
        life(source, lambda _: OK)
    except Killed:
        is_killed = True
    monkeypatch.undo()
    assert is_killed == (step < next(deeds))
    if out_of(source).exists():
        assert statuses(source) == ["ok"] * 1000
    if finished_before(out_of(source), CONFIGURATION) is None:
        summary, judge = life(source, lambda _: OK)
        assert judge.taken == (1000 if step == 0 else 0)
        assert summary["rows"] == 1000
    assert statuses(source) == ["ok"] * 1000

"""`rewardcore judge`: rows in, the same rows with verdicts out, whatever happens in between."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rewardcore.testing import SimulatedServer
from tests import commands
from tests.modes.hostile_server import eventually

#: Slow enough to be interrupted, four at once.
SLOWLY = ["--max-concurrent", "4"]
slow_judge = pytest.mark.judge_server("instant", latency=0.05)


class Folder:
    """Where the command runs: `samples.jsonl` in, `verdicts.jsonl` out."""

    def __init__(self, path: Path, server: SimulatedServer) -> None:
        self.path = path
        self.server = server

    def write(self, *lines: object, name: str = "samples.jsonl") -> None:
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        (self.path / name).write_text("".join(f"{text}\n" for text in texts))

    def words(self, *flags: str, source: str = "samples.jsonl", out: str = "verdicts.jsonl") -> list[str]:
        return ["judge", source, out, "--base-url", self.server.base_url, "--model", "judge", *flags]

    def judge(self, *flags: str, **files: str) -> subprocess.CompletedProcess[str]:
        return commands.rewardcore(*self.words(*flags, **files), cwd=self.path, env=_environment())

    @contextlib.contextmanager
    def judging(self, *flags: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "rewardcore", *self.words(*flags)],
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    @property
    def requests(self) -> int:
        return self.server.stats().requests

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.path.iterdir())

    def kept(self) -> int:
        """Rows in the journal that have a verdict for good."""
        lines = (self.path / "verdicts.jsonl.partial").read_text().splitlines()
        return sum("final" not in json.loads(line) for line in lines)

    def out(self, name: str = "verdicts.jsonl") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / name).read_text().splitlines()]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}


@pytest.fixture
def folder(tmp_path: Path, judge_server: SimulatedServer) -> Folder:
    return Folder(tmp_path, judge_server)


def row(number: int, **more: object) -> dict[str, object]:
    return {"prompt": f"Question {number}.", "response": f"Answer {number}.", "id": f"row-{number}"} | more


def rows(count: int) -> list[dict[str, object]]:
    return [row(number) for number in range(count)]


DONE = ["samples.jsonl", "verdicts.jsonl", "verdicts.jsonl.run.json"]
NOT_DONE = [
    "samples.jsonl",
    "verdicts.jsonl.partial",
    "verdicts.jsonl.partial.configuration",
]


@pytest.mark.parametrize("mode", ["asyncio", "sync", "process"])
def test_every_row_comes_out_with_its_verdict_in_input_order(folder: Folder, mode: str) -> None:
    given = rows(40)
    folder.write(*given)
    folder.server.when("Answer 7.").scores(10, seconds=0.5)
    done = folder.judge("--mode", mode, "--max-concurrent", "2", "--quiet")
    assert (done.returncode, done.stdout) == (0, "")
    out = folder.out()
    assert [{**each, "verdict": None} for each in out] == [{**each, "verdict": None} for each in given]
    assert set(out[7]["verdict"]) == {"status", "score", "text", "error", "cached", "attempts", "latency", "usage"}
    assert (out[7]["verdict"]["status"], out[7]["verdict"]["score"]) == ("ok", 1.0)
    assert folder.names == DONE


def test_a_parquet_file_with_a_conversation_comes_out_as_json_lines(folder: Folder) -> None:
    given = [{"prompt": [{"role": "user", "content": "Why?"}], "response": "So.", "ground_truth": 42.5, "extra": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(given), folder.path / "samples.parquet")
    assert folder.judge("--rubric", "correctness", source="samples.parquet").returncode == 0
    ((out),) = folder.out()
    assert out["verdict"]["status"] == "ok"
    assert {name: out[name] for name in given[0]} == given[0]


def test_every_spelling_of_a_flag_is_understood(folder: Folder) -> None:
    folder.write(row(0))
    assert folder.judge("--max_concurrent", "auto", "--max-tokens=7", "--max_failures", "3").returncode == 0


# Going on.


@slow_judge
def test_a_run_that_is_killed_goes_on_and_pays_only_what_was_in_flight(folder: Folder) -> None:
    folder.write(*rows(80))
    with folder.judging(*SLOWLY) as process:
        eventually(lambda: folder.requests >= 20, "it is in the middle of it")
        process.send_signal(signal.SIGKILL)
    assert folder.names == NOT_DONE
    eventually(lambda: folder.server.stats().in_flight == 0, "its last requests are over")
    sent, kept = folder.requests, folder.kept()
    assert kept >= 8
    done = folder.judge(*SLOWLY)
    assert done.returncode == 0
    assert f"{kept} rows are done already" in done.stdout
    assert f"80 rows: 80 ok; {kept} of them were done before" in done.stdout
    assert folder.requests == sent + 80 - kept
    assert sent - kept <= 8  # those on the wire, and those whose replies were not written down yet
    assert [each["id"] for each in folder.out()] == [f"row-{number}" for number in range(80)]
    assert folder.names == DONE


@slow_judge
@pytest.mark.parametrize(
    ("number", "code", "says"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("mode", ["asyncio", "sync", "process"])
def test_a_signal_ends_it_promptly_and_says_how_to_go_on(
    folder: Folder, number: int, code: int, says: str, mode: str
) -> None:
    folder.write(*rows(2000))
    with folder.judging(*SLOWLY, "--mode", mode) as process:
        eventually(lambda: (folder.path / "verdicts.jsonl.partial").exists() and folder.kept() > 3, "it has begun")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    kept = folder.kept()
    assert process.returncode == code
    partial = "verdicts.jsonl.partial"
    last = errors.splitlines()[-1]
    assert last == f"rewardcore: {says}: {kept} rows are done and kept in {partial}: run the same again to go on"
    assert folder.names == NOT_DONE


def test_rows_that_failed_are_in_the_output_and_alone_are_tried_again(folder: Folder) -> None:
    folder.write(*rows(10))
    folder.server.when("Answer 3.").fails(400, times=1).scores(10)
    folder.server.when("Answer 4.").says("no score at all")
    folder.server.when("Answer 5.").refuses()
    done = folder.judge()
    assert done.returncode == 1
    assert "3 of 10 rows have no score, and --max-failures allows 0" in done.stderr
    assert "run the same again to try 1 rows again, or delete verdicts.jsonl.partial*" in done.stdout
    before = folder.out()
    assert [each["verdict"]["status"] for each in before[3:6]] == ["failed", "unparsed", "refused"]
    assert folder.judge("--max-failures", "2").returncode == 0
    assert folder.requests == 11
    after = folder.out()
    assert after[3]["verdict"]["score"] == 1.0
    assert [*after[:3], *after[4:]] == [*before[:3], *before[4:]]
    assert folder.names == DONE


def test_a_run_that_is_done_says_so_and_sends_nothing(folder: Folder) -> None:
    folder.write(*rows(5))
    first = folder.judge("--json")
    written = (folder.path / "verdicts.jsonl").stat()
    again = folder.judge("--json")
    assert again.returncode == 0
    assert "verdicts.jsonl is complete already, and nothing was sent" in again.stderr
    assert again.stdout == first.stdout
    assert folder.requests == 5
    assert (folder.path / "verdicts.jsonl").stat() == written


# What is in the way.


def test_an_output_that_is_somebody_elses_is_never_overwritten(folder: Folder) -> None:
    folder.write(row(0))
    folder.write("precious", name="verdicts.jsonl")
    done = folder.judge()
    assert done.returncode == 2
    assert done.stderr == (
        "rewardcore: verdicts.jsonl exists, and verdicts.jsonl.run.json does not say what made it; give another"
        " output, or --no-resume to begin anew (it is then kept under another name)\n"
    )
    assert (folder.path / "verdicts.jsonl").read_text() == "precious\n"
    assert folder.judge("--no-resume").returncode == 0
    assert (folder.path / "verdicts.jsonl.old-1").read_text() == "precious\n"
    assert len(folder.out()) == 1


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_run_of_another_configuration_is_refused_with_every_difference(folder: Folder, is_finished: bool) -> None:
    folder.write(*rows(3))
    if not is_finished:
        folder.server.when("Answer 2.").fails(400)
    folder.judge()
    folder.write(*rows(4))
    done = folder.judge("--temperature", "0.5", "--max-concurrent", "3")
    assert done.returncode == 2
    assert "data was '" in done.stderr
    assert "temperature was 0.0 and is 0.5; give another output, or --no-resume" in done.stderr
    assert "concurrent" not in done.stderr
    assert folder.requests == 3
    assert folder.judge("--temperature", "0.5", "--no-resume").returncode == (0 if is_finished else 1)
    assert len(folder.out("verdicts.jsonl.old-1")) == 3
    assert len(folder.out()) == 4


@slow_judge
def test_a_file_that_is_put_in_the_outputs_place_meanwhile_is_not_overwritten(folder: Folder) -> None:
    folder.write(*rows(12))
    with folder.judging("--mode", "sync") as process:
        eventually(lambda: folder.requests >= 2, "it has begun")
        folder.write("precious", name="verdicts.jsonl")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "verdicts.jsonl exists, and verdicts.jsonl.run.json does not say what made it" in errors
    assert (folder.path / "verdicts.jsonl").read_text() == "precious\n"
    (folder.path / "verdicts.jsonl").unlink()
    assert folder.judge("--mode", "sync").returncode == 0
    assert folder.requests == 12


@slow_judge
def test_a_second_command_on_the_same_output_is_refused(folder: Folder) -> None:
    folder.write(*rows(2000))
    with folder.judging(*SLOWLY):
        eventually(lambda: folder.requests >= 2, "it has begun")
        for flags in ([], ["--no-resume"]):
            done = folder.judge(*flags)
            assert done.returncode == 2
            assert "verdicts.jsonl.partial is being written by another process" in done.stderr


BAD_ROWS = [
    ('{"prompt": "half', [], "is not valid JSON: unexpected end of data"),
    ('{"prompt": "p", "score": NaN}', [], "is not valid JSON"),
    ("[1]", [], "is a list, not an object"),
    ({"prompt": "p", "answer": "a"}, [], "has no 'response'; its columns are prompt, answer"),
    (row(1, verdict="good"), [], "has a column 'verdict', which would be overwritten; rename it"),
    (row(1, prompt=7), [], "cannot be judged: prompt must be a text, or a list of messages"),
    (row(1, prompt=None), [], "cannot be judged: prompt must be a text"),
    (row(1, extra=[1]), [], "cannot be judged: extra must be a mapping or None"),
    (row(1, data_source=3), [], "cannot be judged: data_source must be a text"),
    (row(1), ["--rubric", "correctness"], "cannot be judged: "),
]


@pytest.mark.parametrize(("bad", "flags", "reason"), BAD_ROWS)
def test_a_bad_row_is_told_with_its_line_before_anything_is_sent(
    folder: Folder, bad: object, flags: list[str], reason: str
) -> None:
    fine = row(0, ground_truth=42)
    folder.write(fine, "", bad, fine | {"id": 1}, "[2]")
    done = folder.judge(*flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rewardcore: line 3 of samples.jsonl {reason}")
    assert done.stderr.endswith(", and 1 more are bad; nothing was sent: mend it, or give --skip-bad-rows\n")
    assert (folder.requests, folder.names) == (0, ["samples.jsonl"])


def test_bad_rows_are_skipped_when_that_is_wanted_and_told(folder: Folder) -> None:
    folder.write(row(0, ground_truth="a"), "[1]", row(2, ground_truth=2), row(3, ground_truth=None))
    done = folder.judge("--skip-bad-rows", "--rubric", "correctness", "--json")
    assert done.returncode == 0
    assert "rewardcore: 2 bad rows are skipped, the first: line 2 of samples.jsonl is a list, not an" in done.stderr
    assert json.loads(done.stdout)["bad_rows"] == 2
    assert [each["id"] for each in folder.out()] == ["row-0", "row-2"]


@slow_judge
def test_an_endpoint_that_turns_us_away_ends_the_run_and_keeps_what_is_done(folder: Folder) -> None:
    folder.write(*rows(300))
    folder.server.when("Answer 20.").fails(401, times=1)
    done = folder.judge("--mode", "sync")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("rewardcore: Denied: 127.0.0.1:")
    assert last.endswith("; 20 rows are done and kept in verdicts.jsonl.partial: run the same again to go on")
    assert folder.requests == 21
    assert folder.judge("--max-concurrent", "60").returncode == 0
    assert folder.requests == 301


def test_an_endpoint_that_was_never_there_ends_the_run_and_leaves_nothing(folder: Folder) -> None:
    folder.write(*rows(300))
    folder.server.when("").fails(404)
    done = folder.judge()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("; no row is done")
    assert folder.requests <= 60
    assert folder.names == ["samples.jsonl"]


def test_rows_without_end_that_get_no_reply_end_the_run_unless_they_may_fail(folder: Folder) -> None:
    folder.write(row(0), *rows(700)[1:])
    folder.server.when("").fails(400)
    folder.server.when("Answer 0.").scores(1)
    done = folder.judge()
    assert done.returncode == 1
    assert "the last 257 rows had no reply, the latest: Rejected: " in done.stderr
    assert "(--max-failures allows more); 1 rows are done and kept in verdicts.jsonl.partial" in done.stderr
    assert folder.requests < 700
    assert folder.judge("--max-failures", "699").returncode == 0
    assert len(folder.out()) == 700


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--mode", "self"], '--mode must be "asyncio" or "sync" or "process", not \'self\''),
        (["--max-concurrent", "many"], "--max-concurrent must be a number or auto, not 'many'"),
        (["--max-concurrent", "none"], "--max-concurrent must be a number or auto, not 'none'"),
        (["--cache", "~nobody-of-that-name/judge.sqlite"], "cache "),
        (["--max-concurrent", "0"], "max_concurrent must be a whole number above 0"),
        (["--temperature", "hot"], "--temperature must be a number or none, not 'hot'"),
        (["--extra-body", "[1]"], "--extra-body must be a JSON object such as"),
        (["--extra-body", "{"], "--extra-body must be a JSON object: "),
        (["--max-failures", "-1"], "--max-failures must be a whole number of at least 0, not -1"),
        (["--rubric", "kindness"], "rubric 'kindness' is none of "),
        (["--deadline", "0"], "deadline must be seconds above 0"),
    ],
)
def test_a_wrong_flag_is_one_sentence_before_anything_begins(folder: Folder, flags: list[str], says: str) -> None:
    folder.write(row(0))
    done = folder.judge(*flags)
    assert done.returncode == 2
    assert done.stderr.startswith(f"rewardcore: {says}")
    assert len(done.stderr.splitlines()) == 1
    assert (folder.requests, folder.names) == (0, ["samples.jsonl"])


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"out": "verdicts.parquet"}, "OUT must end in .jsonl, not 'verdicts.parquet'"),
        ({"out": "missing/verdicts.jsonl"}, "missing/verdicts.jsonl.partial cannot be written: No such file"),
        ({"out": "folder.jsonl"}, "folder.jsonl is a directory; give a file as the output"),
        ({"out": "samples.jsonl"}, "samples.jsonl is the input itself; give another output"),
        ({"source": "missing.jsonl"}, "missing.jsonl does not exist; give a file that ends in .jsonl"),
        ({"source": "~nobody-of-that-name/samples.jsonl"}, "~nobody-of-that-name/samples.jsonl does not exist"),
        ({"source": ""}, "the data has no name; give a file that ends in .jsonl"),
    ],
)
def test_a_wrong_file_is_one_sentence(folder: Folder, files: dict[str, str], says: str) -> None:
    folder.write(row(0))
    (folder.path / "folder.jsonl").mkdir()
    done = folder.judge(**files)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith(f"rewardcore: {says}")
    assert len(done.stderr.splitlines()) == 1
    assert (folder.requests, folder.names) == (0, ["folder.jsonl", "samples.jsonl"])


@pytest.mark.parametrize("out", ["samples.jsonl", "./samples.jsonl", "folder.jsonl"])
def test_neither_the_input_nor_a_directory_is_put_aside_to_begin_anew(folder: Folder, out: str) -> None:
    folder.write(row(0))
    (folder.path / "folder.jsonl").mkdir()
    done = folder.judge("--no-resume", out=out)
    assert done.returncode == 2
    assert "; give a" in done.stderr
    assert (folder.requests, folder.names) == (0, ["folder.jsonl", "samples.jsonl"])


# What is told.


def test_a_dry_run_shows_a_request_and_counts_them_all_without_sending_any(folder: Folder) -> None:
    folder.write(*(row(number, ground_truth=number / 2) for number in range(100)))
    done = folder.judge("--dry-run", "--rubric", "correctness", "--max-tokens", "50", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout.splitlines()[-1])
    shown = found["request"]["messages"][0]["content"]
    assert "0.0" in shown
    assert shown in done.stderr
    assert (found["requests"], found["reply_tokens_at_most"]) == (100, 5000)
    assert found["prompt_tokens"] == pytest.approx(100 * len(shown) / 4, rel=0.02)
    assert "100 requests at most, since rows that are alike share one; about" in done.stderr
    assert "tokens of prompts (one for every 4 characters; images are not counted)" in done.stderr
    assert (folder.requests, folder.names) == (0, ["samples.jsonl"])


def test_the_summary_is_complete_as_text_and_as_one_document(folder: Folder) -> None:
    folder.write(*rows(8), row(0), "[1]")
    for number, score in enumerate([1, 1, 4, 10]):
        folder.server.when(f"Answer {number}.").scores(score)
    for number in (4, 5):
        folder.server.when(f"Answer {number}.").scores(7)
    folder.server.when("Answer 6.").truncates()
    folder.server.when("Answer 7.").fails(422)
    arguments = ["--max-failures", "2", "--skip-bad-rows", "--mode", "sync", "--cache", "judge.sqlite"]
    done = folder.judge(*arguments, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rows"], found["resumed"], found["bad_rows"], found["to_try_again"]) == (9, 0, 1, 1)
    assert found["statuses"] == {"ok": 7, "truncated": 1, "failed": 1}
    scores = found["scores"]
    assert (scores["count"], scores["min"], scores["max"]) == (7, 0.0, 1.0)
    expected = [0, 0, 0, 1 / 3, 2 / 3, 2 / 3, 1]
    assert (scores["mean"], scores["std"]) == pytest.approx((mean(expected), pstdev(expected)))
    assert scores["quartiles"] == [0.0, 0.3333, 0.6667]
    assert [each["count"] for each in scores["histogram"]] == [3, 0, 0, 1, 0, 0, 2, 0, 0, 1]
    assert found["failures"]["truncated"]["count"] == found["failures"]["Rejected"]["count"] == 1
    assert "answered 422" in found["failures"]["Rejected"]["example"]
    assert found["requests"] == {"sent": 8, "retried": 0, "cached": 1, "coalesced": 0}
    assert found["latency"]["p99"] >= found["latency"]["p50"] > 0
    assert found["tokens"]["prompt"] > 0
    for line in (
        "9 rows: 7 ok, 1 truncated, 1 failed",
        "1 bad rows were skipped",
        "scores: mean 0.381, std 0.375, quartiles 0, 0.333, 0.667",
        "    0.60 to 0.70   ███████████████████████████              2",
        "requests: 8 sent, 0 of them again; 1 saved (1 cached, 0 shared)",
        "written to verdicts.jsonl",
    ):
        assert line in done.stderr.splitlines()
    assert "1 Rejected, such as: " in done.stderr

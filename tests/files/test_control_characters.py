"""Control characters of other people's words: escaped wherever a command prints them, and kept as they are in files."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from rewardcore.notices import log, say
from rewardcore.testing import SimulatedServer
from rewardcore.words import LONGEST, cut, one_line, printable
from tests.commands import rewardcore

#: Clears a terminal, names its window, rubs out, begins a sequence in one byte, and turns the direction of writing.
EVIL = "\x1b[2J\x1b]0;owned\x07\x08\x7f\x9b31m\u202e"
RAW = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def rows_of(folder: Path, *rows: dict[str, object]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def shown(folder: Path, code: int, *words: object) -> str:
    """Everything that a command has printed."""
    done = rewardcore(*words, cwd=folder)
    assert done.returncode == code, done
    assert not RAW.search(done.stdout + done.stderr), done
    assert "\\u001b[2J" in done.stdout + done.stderr, "it is there, and escaped"
    return done.stdout


def test_what_a_server_says_of_a_row_is_shown_escaped(tmp_path: Path, judge_server: SimulatedServer) -> None:
    judge_server.when("break").refuses(EVIL)
    judge_server.when("curse").says(f"{EVIL} no score")
    rows = rows_of(tmp_path, {"prompt": "break", "response": "!"}, {"prompt": "curse", "response": "!"})
    words = "judge", rows, "out.jsonl", "--base-url", judge_server.base_url, "--model", "judge", "--cache", "c.sqlite"
    shown(tmp_path, 1, *words)
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1])["verdict"]["text"] == f"{EVIL} no score"
    for json_too in ([], ["--json"]):
        shown(tmp_path, 1, *words, "--no-resume", *json_too)
    shown(tmp_path, 0, "cache", "explain", "c.sqlite", "")


def test_a_row_is_shown_escaped_before_it_is_sent(tmp_path: Path) -> None:
    there = "--base-url", "http://127.0.0.1:9/v1", "--model", "judge"
    rows = rows_of(tmp_path, {"prompt": f"one\ntwo {EVIL}", "response": EVIL})
    assert "one\ntwo" in shown(tmp_path, 0, "judge", rows, "out.jsonl", *there, "--dry-run")
    output = shown(tmp_path, 0, "judge", rows, "out.jsonl", *there, "--dry-run", "--json")
    assert EVIL in json.loads(output)["request"]["messages"][-1]["content"]


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_a_bad_row_is_shown_escaped(tmp_path: Path, flags: list[str]) -> None:
    rows = rows_of(tmp_path, {f"{EVIL}\nrewardcore: all is well": 1})
    there = "--base-url", "http://127.0.0.1:9/v1", "--model", "judge"
    assert "\nrewardcore: all" not in shown(tmp_path, 0 if flags else 2, "judge", rows, "out.jsonl", *there, *flags)


def test_a_models_name_is_shown_escaped(tmp_path: Path, judge_server: SimulatedServer) -> None:
    there = "--base-url", judge_server.base_url, "--model", EVIL
    rows = rows_of(tmp_path, {"prompt": "?", "response": "!"})
    assert rewardcore("judge", rows, "out.jsonl", *there, "--cache", "c.sqlite", cwd=tmp_path).returncode == 0
    shown(tmp_path, 0, "judge", rows, "other.jsonl", *there, "--dry-run", "--json")
    shown(tmp_path, 0, "cache", "stats", "c.sqlite")
    shown(tmp_path, 0, "cache", "explain", "c.sqlite")


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_what_a_server_says_of_itself_is_shown_escaped(
    tmp_path: Path, judge_server: SimulatedServer, command: str
) -> None:
    judge_server.when("6 × 7").refuses(EVIL)
    shown(tmp_path, 1, command, judge_server.base_url, "--model", "judge")


def test_a_warning_on_stderr_is_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", False)
    say(logging.WARNING, "it said %s", EVIL)
    assert capsys.readouterr().err == f"rewardcore: it said {printable(EVIL)}\n"


def test_what_people_write_is_left_as_it_is() -> None:
    assert printable("Größe\tund 判断\n🙂") == "Größe\tund 判断\n🙂"
    assert json.loads(printable(json.dumps({EVIL: "\ud800"}, ensure_ascii=False))) == {EVIL: "\ud800"}


def test_a_long_text_is_cut_before_anything_looks_at_it() -> None:
    assert [len(cut("x" * n)) for n in (LONGEST, LONGEST + 1, 10**6)] == [LONGEST] * 3
    assert one_line("  a\n" * 10**6, 9) == "a a a a …"
    assert one_line(" " * 10**6 + "why", 9) == "why"

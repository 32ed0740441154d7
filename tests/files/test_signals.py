"""Ctrl-C and SIGTERM, at whatever moment they come: the exit code says which, and one line how to go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rewardcore.testing import SimulatedServer

ROOT = Path(__file__).parents[2]
ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
#: Runs that are ended, and run again: as many moments of each command and signal.
MOMENTS = int(os.environ.get("REWARDCORE_MOMENTS", "10"))


def environment(*path: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "OPENBLAS_NUM_THREADS": "1"} | variables


def words_of(command: str, folder: Path, server: SimulatedServer) -> list[str]:
    """A run of three rows."""
    rows = folder / "rows.jsonl"
    truths = [{"prompt": "?", "response": f"It is {n}.", "problem": f"What is {n}?", "answer": n} for n in range(3)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in truths))
    if command == "judge":
        return ["judge", str(rows), "out.jsonl", "--base-url", server.base_url, "--model", "judge"]
    server.when("What is").says("<answer>2</answer>")
    there = ["--base-url", server.base_url, "--model-name", "policy", "--data", str(rows)]
    return ["reject-sample", *there, "--num-rollout", "2", "--output-dir", "results"]


@pytest.mark.parametrize(("number", "code", "word"), ENDS)
@pytest.mark.parametrize("command", ["judge", "reject-sample"])
def test_whatever_line_a_command_is_at_a_signal_ends_it_and_it_can_go_on(
    command: str, number: int, code: int, word: str, tmp_path: Path, judge_server: SimulatedServer
) -> None:
    request = {"number": number, "words": words_of(command, tmp_path, judge_server), "among": MOMENTS}
    done = subprocess.run(
        [sys.executable, "-m", "tests.files.signalled", json.dumps(request | {"directory": str(tmp_path)})],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    assert len(ends) == MOMENTS or MOMENTS > 1000
    assert [end for end in ends if not _is_good(end, code, word)] == []


def _is_good(end: dict[str, Any], code: int, word: str) -> bool:
    """One line that says how to go on, or that all was done; and it does go on."""
    *others, last = end["errors"].splitlines() or [""]
    says = ("run the same", "all rows are done", "after its work was over")
    is_told = last.startswith(f"rewardcore: {word}") and any(word in last for word in says)
    is_quiet = not any("Traceback" in line or "ignored" in line for line in others)
    return end["code"] == code and is_told and is_quiet and end["again"] == 0


AT_AN_IMPORT = """
import os, sys
names = []

def hook(event, arguments):
    if event == "import" and ("rewardcore.interrupts" in names or arguments[0] == "rewardcore.interrupts"):
        names.append(arguments[0])
        if len(names) == {place}:
            os.kill(os.getpid(), {number})

sys.addaudithook(hook)
"""


@pytest.mark.parametrize(("number", "code", "word"), ENDS)
@pytest.mark.parametrize("place", [2, 8, 40, 120, 200])
def test_while_it_imports_a_signal_is_one_line(number: int, code: int, word: str, place: int, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_AN_IMPORT.format(place=place, number=int(number)))
    done = subprocess.run(
        [sys.executable, "-m", "rewardcore", "judge", "--help"],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"rewardcore: {word} before it had begun; run the same again\n"

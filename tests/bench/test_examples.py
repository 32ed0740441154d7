"""The programs in examples/ do what a newcomer is told they do; the README's own Python runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "first_verdicts": ["sample     ok  score ", "failed, no score: RubricFailed", "3 requests, "],
    "overlap": ["256 of 256 scored; the caller waited "],
    "own_rubric": ["polite: ok, ", "short and right: ok, ", "template shows {respnse}, no field"],
    "stream": ["500 scored, "],
    "self_judge": ["0 of 20 game the task; 1.0 is worse; 3 calls of the model"],
}
#: What needs an extra is run where that is installed.
ELSEWHERE = {"judge_with_policy": "tests/trl", "train_with_trl": "tests/trl", "train_with_verl": "tests/verl"}


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, **options)


def test_every_example_is_run():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"} == {*EXAMPLES, *ELSEWHERE}
    for name, folder in ELSEWHERE.items():
        assert any(f"examples.{name}" in path.read_text() for path in (ROOT / folder).glob("test_*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_from_start_to_finish(name):
    done = run("-m", f"examples.{name}", timeout=120)
    assert done.returncode == 0, done.stderr
    for expected in EXAMPLES[name]:
        assert expected in done.stdout
    lines = done.stderr.splitlines()
    assert all(line.startswith("rewardcore: 1 of 4 not judged") for line in lines), done.stderr


def test_an_example_judges_with_an_endpoint_of_the_callers_own(judge_server):
    done = run("-m", "examples.overlap", "--base-url", judge_server.base_url, "--model", "judge", timeout=120)
    assert "256 of 256 scored" in done.stdout, done.stderr
    assert judge_server.stats().requests == 256


def test_the_readmes_first_program_runs_as_it_stands(tmp_path, judge_server):
    (source,) = re.findall(
        r"```python\n(import rewardcore as rc\n.*?open_judge\(.*?)```", (ROOT / "README.md").read_text(), re.S
    )
    program = tmp_path / "program.py"
    program.write_text(source.replace("http://127.0.0.1:8000/v1", judge_server.base_url))
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Stats(requests=2" in done.stdout

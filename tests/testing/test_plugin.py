"""Promises of the pytest fixture `judge_server`, in a stranger's project: strict markers, warnings are errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NET = 120.0
STRICT = """
[pytest]
addopts = --strict-markers --strict-config
filterwarnings = error
"""


def run_pytest(
    project: Path, tests: str, *arguments: str, plugin: str = "pytest_rewardcore"
) -> subprocess.CompletedProcess[str]:
    """As the project's own: nothing of this run's set-up is handed down."""
    (project / "pytest.ini").write_text(STRICT)
    (project / "test_reward.py").write_text(tests)
    plugins = ["-p", plugin, "-p", "no:asyncio", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=NET)


REWARDS = '''
import pytest
import rewardcore as rc

PROCESSES = set()

def rewards(endpoint, responses):
    """The function that a stranger tests: what was not judged is None."""
    with rc.open_judge("asyncio", endpoint, cache=None, deadline=60.0) as judge:
        return [verdict.score for verdict in judge.judge([rc.Sample("6 × 7?", response) for response in responses])]

def test_scripted(judge_server):
    PROCESSES.add(judge_server.process_id)
    judge_server.when("It is 42.").scores(10)
    judge_server.when("It is 41.").fails(429, retry_after=0.01, times=2).scores(1)
    judge_server.when("How do I").refuses()
    assert rewards(judge_server.endpoint, ["It is 42.", "It is 41.", "How do I"]) == [1.0, 0.0, None]
    assert judge_server.stats().statuses == {"200": 3, "429": 2}

def test_nothing_is_left_of_the_test_before(judge_server):
    PROCESSES.add(judge_server.process_id)
    assert judge_server.stats().requests == 0
    assert None not in rewards(judge_server.endpoint, ["It is 42.", "It is 41.", "How do I"])
    assert judge_server.stats().statuses == {"200": 3}

@pytest.mark.judge_server(rate_limit=0.001, retry_after=3600)
def test_another_temper(judge_server):
    PROCESSES.add(judge_server.process_id)
    assert rewards(judge_server.endpoint, ["a"]) != [None]
    judge_server.reset("instant")
    assert None not in rewards(judge_server.endpoint, ["a", "b"])

@pytest.mark.judge_server("outage", latency=0.0, outage_start=0.0, outage_seconds=0.05)
class TestTheWholeClass:
    def test_a_profile_by_its_name(self, judge_server):
        PROCESSES.add(judge_server.process_id)
        assert None not in rewards(judge_server.endpoint, ["a", "b"])
        assert judge_server.stats().statuses["503"] >= 1

    @pytest.mark.judge_server
    def test_the_closest_marker_counts(self, judge_server):
        assert None not in rewards(judge_server.endpoint, ["a", "b"])
        assert judge_server.stats().statuses == {"200": 2}

def test_one_process_served_them_all(judge_server):
    assert PROCESSES == {judge_server.process_id}
'''


def test_a_stranger_tests_a_reward_function_with_it(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, REWARDS)
    assert "6 passed" in done.stdout, done.stdout
    assert done.returncode == 0


OF_MY_PROJECT = """
import rewardcore as rc

def rewards(endpoint, responses):
    with rc.open_judge("asyncio", endpoint, cache=None, deadline=60.0) as judge:
        return [verdict.score for verdict in judge.judge([rc.Sample("6 × 7?", response) for response in responses])]
"""


def test_the_readmes_tests_pass_as_they_stand(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (tests,) = [block for block in blocks if "(judge_server)" in block]
    (tmp_path / "my_project.py").write_text(OF_MY_PROJECT)
    done = run_pytest(tmp_path, tests)
    assert "2 passed" in done.stdout, done.stdout


def test_with_xdist_every_worker_has_a_judge_of_its_own(tmp_path: Path) -> None:
    tests = "import pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_it(judge_server, n):\n"
    tests += "    judge_server.when('').scores(n)\n    assert judge_server.stats().requests == 0\n"
    done = run_pytest(tmp_path, tests, "-n", "2")
    assert "8 passed" in done.stdout, done.stdout


def test_a_run_that_does_not_ask_for_it_imports_nothing_of_ours(tmp_path: Path) -> None:
    tests = "import sys\ndef test_it():\n    ours = [name for name in sys.modules if name.startswith('rewardcore')]\n"
    done = run_pytest(tmp_path, tests + "    assert ours == []\n")
    assert "1 passed" in done.stdout, done.stdout


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "def test_it(judge_server): pass\n", plugin="no:pytest_rewardcore")
    assert "fixture 'judge_server' not found" in done.stdout


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("profile='fast'", r"profile 'fast' is none of instant, steady"),
        ("latency=-1", r"--latency must be a finite number of at least 0, not -1"),
        ("latency='slow'", r"--latency must be a finite number of at least 0, not 'slow'"),
        ("latancy=1", r"a profile has no latancy; it has latency, spread"),
        ("7", r"profile must be a Profile or the name of one, not int"),
    ],
)
def test_a_wrong_marker_is_one_sentence(tmp_path: Path, marker: str, says: str) -> None:
    tests = f"import pytest\n@pytest.mark.judge_server({marker})\ndef test_it(judge_server): pass\n"
    done = run_pytest(tmp_path, tests)
    assert re.search(rf"\n@pytest\.mark\.judge_server: {says}", done.stdout), done.stdout
    assert "def judge_server" not in done.stdout  # no source of ours is shown with it


def test_the_marker_explains_itself(tmp_path: Path) -> None:
    assert "@pytest.mark.judge_server(profile, **changes):" in run_pytest(tmp_path, "", "--markers").stdout


def test_the_installed_package_brings_it_along() -> None:
    """By the name of its module: then `-p pytest_rewardcore` beside the entry point does not load it twice."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["entry-points"]["pytest11"] == {"pytest_rewardcore": "pytest_rewardcore"}
    assert "pytest_rewardcore.py" in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]

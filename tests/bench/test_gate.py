"""The command, in a repository of its own: what it answers, with which exit code, and in which words."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gate import revisions
from bench.gate.children import environment
from bench.gate.revisions import PACKAGE
from bench.harness import PACKAGES, ROOT
from tests.bench.defects import edit
from tests.bench.gate_defects import DEFECTS

ONE_MORE_REQUEST, ANOTHER_SCALE = DEFECTS[0], DEFECTS[4]
ONLY = ("--tiers", "exact", "--only", "respx/sync/16", "--only", "respx/asyncio-httpx/16")
MARK = "GATE_UNDER_TEST"


class Repository:
    """A checkout with one commit, `main`; tests commit to branches of their own, or change files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in (*PACKAGE, *PACKAGES):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, directory / name)
        (directory / ".gitignore").write_text("__pycache__/\n.bench/\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("main")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=self.directory, check=True, capture_output=True, text=True).stdout

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def gate(self, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **({} if path is None else {"PATH": path})}
        command = [sys.executable, "-m", "bench.gate", *arguments]
        return subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=240, env=environment)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def repository(shared):
    yield shared
    shared.git("checkout", "--quiet", "--force", "main")
    shared.git("clean", "--quiet", "-fd")


def test_a_revision_against_itself_passes_with_0(repository, tmp_path):
    done = repository.gate("--base", "main", "--head", "HEAD", *ONLY, "--json", str(tmp_path / "gate.json"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "pass"), done.stderr
    assert "nothing has moved" in done.stdout
    assert "2 of 2" in done.stderr
    findings = json.loads((tmp_path / "gate.json").read_text())["findings"]
    assert {finding["scenario"] for finding in findings} == {"respx/sync/16", "respx/asyncio-httpx/16"}
    assert all(finding["version"] >= 1 for finding in findings)


def test_a_commit_with_one_more_request_fails_with_1_and_says_where(repository, tmp_path):
    repository.git("checkout", "--quiet", "-b", "one-more")
    edit(ONE_MORE_REQUEST, repository.directory)
    repository.commit("One more request")
    markdown = tmp_path / "gate.md"
    done = repository.gate("--base", "main", "--head", "one-more", *ONLY, "--markdown", str(markdown))
    assert done.returncode == 1, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("fail ")]
    assert ["respx/sync/16", "requests", "16", "requests", "17", "requests", "+6.2%"] in [row[2:] for row in rows]
    assert "| fail | exact | respx/sync/16 | requests | 16 requests | 17 requests | +6.2% |" in markdown.read_text()


def test_of_the_environments_that_were_built_the_last_used_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(revisions, "CACHE", tmp_path)
    monkeypatch.setattr(revisions, "KEPT", 2)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "ready").touch()
        os.utime(tmp_path / str(number) / "ready", (number, number))
    revisions._prune()
    assert sorted(directory.name for directory in tmp_path.iterdir()) == ["2", "3"]


def test_what_is_not_committed_is_measured_as_the_working_tree(repository):
    edit(ONE_MORE_REQUEST, repository.directory)
    assert repository.gate("--base", "main", *ONLY).returncode == 1
    committed = repository.gate("--base", "main", "--head", "main", *ONLY)
    assert committed.returncode == 0
    assert "the working tree has changes that are not measured; --head . measures them" in committed.stderr


def test_a_digest_that_a_commit_explains_passes(repository):
    repository.git("checkout", "--quiet", "-b", "another-scale")
    edit(ANOTHER_SCALE, repository.directory)
    repository.commit("Another scale\n\nExplains: verdict digest: scores begin at 0.1")
    done = repository.gate("--base", "main", "--head", "another-scale", *ONLY)
    assert done.returncode == 0, done.stdout
    assert "explained: scores begin at 0.1" in done.stdout


def test_a_worsening_that_a_commit_explains_passes_unless_it_is_only_half_named(repository):
    """The figures are named with their scenarios: "requests" alone would excuse them everywhere."""
    repository.git("checkout", "--quiet", "-b", "explained")
    edit(ONE_MORE_REQUEST, repository.directory)
    named = ("respx/* requests", "respx/* makespan", "respx/* efficiency", "respx/* caller blocked")
    explanations = "\n".join(f"Explains: {figure}: a probe goes first" for figure in named)
    repository.commit(f"One more request\n\n{explanations}")
    done = repository.gate("--base", "main", "--head", "explained", *ONLY)
    assert done.returncode == 0, done.stdout
    assert "explained: a probe goes first" in done.stdout
    repository.git("commit", "--quiet", "--amend", "--message", "One more request\n\nExplains: requests: why not")
    done = repository.gate("--base", "main", "--head", "explained", *ONLY)
    assert done.returncode == 1
    assert "name the scenario too: respx/sync/16 requests" in done.stdout


def test_a_base_too_old_for_this_harness_is_inconclusive_with_2(repository):
    repository.git("checkout", "--quiet", "-b", "old")
    (repository.directory / "rewardcore" / "clock.py").unlink()
    repository.commit("Before there was a clock")
    repository.git("checkout", "--quiet", "main")
    done = repository.gate("--base", "old", "--head", "main", *ONLY)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (2, "inconclusive")
    assert "No module named 'rewardcore.clock'" in done.stdout


def test_a_head_that_cannot_be_imported_fails(repository):
    (repository.directory / "rewardcore" / "clock.py").unlink()
    done = repository.gate("--base", "main", *ONLY)
    assert done.returncode == 1
    assert "head runs no scenario" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--base", "no-such-branch"), "'no-such-branch' is no revision of this repository"),
        (("--base", "--all"), "expected one argument"),
        (("--base", "main", "--tiers", "exact,speed"), "name some of exact, instructions, paired, history"),
        (("--base", "main", "--pairs", "2"), "fewer than 5 pairs say nothing"),
        (("--base", "main", "--tiers", "exact", "--only", "respx/sync/17"), "it has none of those asked for"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_sentence_with_2(repository, arguments, sentence):
    done = repository.gate(*arguments)
    assert done.returncode == 2
    assert sentence in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_build_that_fails_says_so(repository):
    (repository.directory / "pyproject.toml").write_text("[project]\nname = 7\n")
    done = repository.gate("--base", "main", *ONLY)
    assert done.returncode == 2
    assert "the working tree cannot be built: " in done.stderr
    assert "Traceback" not in done.stderr


def test_without_valgrind_nothing_is_counted_and_that_is_said(repository, tmp_path):
    (tmp_path / "git").symlink_to(shutil.which("git") or "git")
    done = repository.gate("--base", "main", "--head", "main", "--tiers", "instructions", path=str(tmp_path))
    assert done.returncode == 2
    assert "valgrind is not installed here" in done.stdout


def test_without_torch_memory_is_inconclusive_unless_it_is_left_out(repository):
    only = ("--tiers", "exact", "--only", "torch/self-8/1024", "--only", "respx/sync/16")
    done = repository.gate("--base", "main", "--head", "main", *only)
    assert done.returncode == 2
    assert "torch and transformers are not installed" in done.stdout
    assert repository.gate("--base", "main", "--head", "main", *only, "--without", "torch").returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_gate_that_is_broken_off_leaves_no_process(repository, number, code):
    environment = {**os.environ, MARK: str(repository.directory)}
    command = [sys.executable, "-m", "bench.gate", "--base", "main", "--head", "main", "--tiers", "exact"]
    with subprocess.Popen(
        command, cwd=repository.directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as gate:
        assert gate.stderr is not None
        while " of " not in gate.stderr.readline():  # until a child has measured something
            assert gate.poll() is None
        gate.send_signal(number)
        assert gate.wait(timeout=60) == code
        assert "broken off, nothing is decided" in gate.stderr.read()
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if f"{MARK}={repository.directory}" in _environment(pid)]


def test_a_child_never_locks_the_repository(repository):
    """It may be ended at any time, and git would then refuse to commit: so `git status` does not write its index."""
    (repository.directory / "README.md").touch()  # the index would be brought up to date
    index = repository.directory / ".git" / "index"
    before = index.stat().st_mtime_ns
    subprocess.run(["git", "status", "--porcelain"], cwd=repository.directory, check=True, env=environment())
    assert index.stat().st_mtime_ns == before
    subprocess.run(["git", "status", "--porcelain"], cwd=repository.directory, check=True)
    assert index.stat().st_mtime_ns != before


def _environment(process: Path) -> str:
    try:
        return (process / "environ").read_text(errors="replace")
    except OSError:  # another's, or gone
        return ""

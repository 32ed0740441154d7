"""The scripts that write to GitHub, or decide what is told there, run as they stand, with a stub in the place of gh."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.bench.workflows import run

needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed: gh's stub has no filter")

#: Answers a call by the first pattern that is in it, through --jq as gh does, and writes down what it was told.
GH = f"""#!{sys.executable} -S
import json, os, pathlib, subprocess, sys
arguments = sys.argv[1:]
files = [each.removeprefix("body=@") for each in arguments if each.endswith(".md")]
with open("calls", "a") as calls:
    print(json.dumps([arguments, *(pathlib.Path(file).read_text() for file in files)]), file=calls)
for pattern, answer in json.loads(os.environ["ANSWERS"]):
    if pattern in " ".join(arguments):
        if isinstance(answer, str):
            sys.stdout.buffer.write(pathlib.Path(answer).read_bytes())
        elif "--jq" in arguments:
            jq = ["jq", "--raw-output", arguments[arguments.index("--jq") + 1]]
            sys.exit(subprocess.run(jq, input=json.dumps(answer).encode()).returncode)
        break
"""
REPOSITORY = "owner/rewardcore"
SHA = "c0ffee" * 6 + "c0ff"


class GitHub:
    """What gh is answered; `calls` are those that write something, with the text that they carry."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, job: str, step: str, answers: list[tuple[str, Any]], **environment: str):
        environment |= {"ANSWERS": json.dumps(answers), "GITHUB_REPOSITORY": REPOSITORY}
        return run(job, step, self.directory, {"gh": GH}, **environment)

    @property
    def calls(self) -> list[list[Any]]:
        lines = [json.loads(line) for line in (self.directory / "calls").read_text().splitlines()]
        return [line for line in lines if {"POST", "PATCH", "create", "comment"} & set(line[0])]

    def output(self, name: str) -> str:
        lines = (self.directory / "OUTPUT").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith(f"{name}="))


@pytest.fixture
def github(tmp_path):
    return GitHub(tmp_path)


# The comment on a pull request


def pull(number: int = 7, sha: str = SHA, label: str = "bench") -> dict[str, Any]:
    return {"number": number, "head": {"sha": sha}, "labels": [{"name": "help wanted"}, {"name": label}]}


def comment(github: GitHub, text: str = "### pass", pulls: list[Any] | None = None, comments: list[Any] | None = None):
    answers = [("/pulls", [pull()] if pulls is None else pulls), ("--paginate", comments or [])]
    told = {
        "OWNER": "stranger",
        "BRANCH": "branch",
        "HEAD_SHA": SHA,
        "RUN_URL": "https://run",
        "MARK": "<!-- the paired gate -->",
    }
    encoded = base64.b64encode(text.encode()).decode()
    done = github.run("bench-comment/comment", "Comment", answers, TEXT=encoded, **told)
    assert done.returncode == 0, done.stderr
    return github.calls


@needs_jq
@pytest.mark.parametrize(
    ("pulls", "told"),
    [
        ([pull()], [7]),
        ([pull(8, sha="f" * 40), pull()], [7]),
        ([pull(sha="f" * 40)], []),  # it has moved on
        ([pull(label="documentation")], []),
        ([pull(7), pull(8)], []),  # which of them, nobody knows
        ([], []),
    ],
)
def test_a_comment_goes_to_the_pull_request_whose_head_was_measured_and_to_no_other(github, pulls, told):
    assert [call[0][-3] for call in comment(github, pulls=pulls)] == [
        f"repos/{REPOSITORY}/issues/{number}/comments" for number in told
    ]


@needs_jq
def test_there_is_one_comment_and_it_is_renewed_but_never_somebody_elses(github):
    ours = {"id": 3, "user": {"login": "github-actions[bot]"}, "body": "<!-- the paired gate -->\nold"}
    theirs = {"id": 4, "user": {"login": "stranger"}, "body": "<!-- the paired gate -->\nold"}
    other = {"id": 5, "user": {"login": "github-actions[bot]"}, "body": "something else"}
    [[arguments, body]] = comment(github, comments=[ours, theirs, other])
    assert arguments[2:5] == ["--method", "PATCH", f"repos/{REPOSITORY}/issues/comments/3"]
    assert body.startswith("<!-- the paired gate -->\n")
    assert "### pass" in body


@needs_jq
def test_what_a_pull_request_has_written_mentions_nobody_links_nowhere_and_brings_no_markup(github):
    [[_, body]] = comment(github, "| fail | @everyone <img src=x> [here](https://elsewhere) | `$(touch planted)` |")
    assert "@everyone" not in body
    assert "<img" not in body
    assert body.count("[here]") == body.count("\\[here]") == 1
    assert not (github.directory / "planted").exists()


@needs_jq
def test_a_run_that_measured_nothing_is_told_too(github):
    [[_, body]] = comment(github, "")
    assert "Nothing was measured" in body


def read(github: GitHub, artifacts: list[dict[str, int]], archive: Path) -> str:
    answers = [("artifacts?name=gate", {"artifacts": artifacts}), ("artifacts/2/zip", str(archive))]
    done = github.run("bench-comment/read", "Read the report", answers, RUN="1")
    assert done.returncode == 0, done.stderr
    return base64.b64decode(github.output("base64")).decode()


def packed(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@needs_jq
@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"gate.md": b"### pass\n", "gate.json": b"{}"}, "### pass\n"),
        ({"gate.md": b"x" * 10_000_000}, "x" * 40_000),
        ({"gate.md": b"caf\xe9 \xff"}, "caf "),
        ({"gate.json": b"{}"}, ""),
        ({"../planted": b"", "/tmp/planted": b"", "gate.md": b"fine"}, "fine"),
    ],
)
def test_of_an_artifact_one_text_is_read_and_cut_and_nothing_is_unpacked(github, tmp_path, files, text):
    archive = packed(tmp_path / "made.zip", **files)
    assert read(github, [{"id": 1, "size_in_bytes": 9}, {"id": 2, "size_in_bytes": 9}], archive) == text
    left = {path.name for path in tmp_path.iterdir()} - {"programs", "calls", "OUTPUT", "STEP_SUMMARY", "made.zip"}
    assert left == {"gate.zip", "text.md"}
    assert not (tmp_path.parent / "planted").exists()


@needs_jq
@pytest.mark.parametrize("artifacts", [[], [{"id": 2, "size_in_bytes": 5_000_000}]])
def test_an_artifact_that_is_missing_or_too_big_is_no_text(github, tmp_path, artifacts):
    assert read(github, artifacts, packed(tmp_path / "made.zip", **{"gate.md": b"### pass"})) == ""
    assert not (tmp_path / "gate.zip").exists()


@needs_jq
def test_an_artifact_that_is_no_archive_is_no_text(github, tmp_path):
    (tmp_path / "made.zip").write_bytes(b"no archive")
    assert read(github, [{"id": 2, "size_in_bytes": 9}], tmp_path / "made.zip") == ""


# The gate, and the environments of tox


@pytest.mark.parametrize(
    ("code", "is_measured", "doubt", "ends", "said"),
    [
        (0, True, "fails", 0, ""),
        (1, True, "fails", 1, ""),
        (1, True, "warns", 1, ""),
        (2, True, "fails", 2, "::error title=Inconclusive::"),
        (2, True, "warns", 0, "::warning title=Inconclusive::"),
        (2, False, "warns", 1, ""),  # a base that cannot be built
        (1, False, "warns", 1, ""),  # tox itself
    ],
)
def test_the_gates_verdict_is_the_runs_and_a_doubt_is_seen(tmp_path, code, is_measured, doubt, ends, said):
    tox = f"#!/bin/sh\n{'echo measured > gate.md' if is_measured else ''}\nexit {code}\n"
    programs = {"tox": tox, "python": "#!/bin/sh\n"}
    done = run("gate/gate", "Measure", tmp_path, programs, TIERS="exact", DOUBT=doubt)
    assert done.returncode == ends, done.stderr
    assert said in done.stdout
    assert ("::" in done.stdout) is bool(said)
    summary = (tmp_path / "STEP_SUMMARY").read_text()
    assert summary == ("measured\n" if is_measured else "Nothing was measured: the log says why.\n")


@pytest.mark.parametrize(
    ("environment", "event", "index", "ends", "is_run"),
    [
        ("core", "pull_request", "", 7, True),
        ("vllm", "push", "https://index", 7, True),
        ("vllm", "pull_request", "", 0, False),  # a fork's
        ("vllm", "push", "", 1, False),
    ],
)
def test_vllm_is_left_out_only_where_a_fork_cannot_know_its_index(tmp_path, environment, event, index, ends, is_run):
    programs = {"tox": '#!/bin/sh\necho "ran $2"\nexit 7\n', "python": "#!/bin/sh\n"}
    told = {"ENVIRONMENT": environment, "GITHUB_EVENT_NAME": event, "PIP_EXTRA_INDEX_URL": index}
    done = run("ci/tox", "Run", tmp_path, programs, **told)
    assert done.returncode == ends, done.stderr
    assert (f"ran {environment}" in done.stdout) is is_run
    assert ("TORCH_CPU_INDEX" in done.stdout) is not is_run


# A night


@pytest.mark.parametrize(
    ("code", "has_issue", "told", "is_failed"),
    [
        (0, False, "0", False),
        (1, True, "1", False),
        (1, False, "2", True),
        (2, False, "2", True),
        (143, False, "143", True),
    ],
    ids=["unchanged", "changed", "broken down", "dirty", "broken off"],
)
def test_a_change_is_a_result_and_a_night_that_is_not_clean_is_none(tmp_path, code, has_issue, told, is_failed):
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "activate").touch()
    (tmp_path / "night").mkdir()
    issue = "echo title > night/issue.md" if has_issue else ""
    python = f"#!/bin/sh\necho modes > night/summary.md\n{issue}\nexit {code}\n"
    done = run("gpu-nightly/night", "Measure", tmp_path, {"python": python}, RUNNER_TEMP=str(tmp_path), MODEL="")
    assert (done.returncode != 0) is is_failed, done.stderr
    assert (tmp_path / "OUTPUT").read_text() == f"code={told}\n"
    assert (tmp_path / "STEP_SUMMARY").read_text() == "modes\n"


def test_a_night_that_takes_too_long_is_ended_while_it_can_still_say_what_it_has_measured(tmp_path):
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "activate").touch()
    (tmp_path / "night").mkdir()
    timeout = '#!/bin/sh\nshift 2\nexec /usr/bin/timeout 1s "$@"\n'
    python = "#!/bin/sh\ntrap 'echo half > night/summary.md; kill $!; exit 143' TERM\nsleep 20 & wait\n"
    programs = {"timeout": timeout, "python": python}
    done = run("gpu-nightly/night", "Measure", tmp_path, programs, RUNNER_TEMP=str(tmp_path), MODEL="")
    assert done.returncode != 0, done.stderr
    assert (tmp_path / "OUTPUT").read_text() == "code=124\n"
    assert (tmp_path / "STEP_SUMMARY").read_text() == "half\n"


@needs_jq
@pytest.mark.parametrize(
    ("conclusions", "is_third"),
    [
        (["failure", "failure"], "true"),
        (["cancelled", "failure"], "true"),  # a time-out
        (["failure", "success"], "false"),
        (["success", "failure"], "false"),
        (["failure"], "false"),
        ([], "false"),
    ],
)
def test_the_third_night_in_a_row_is_counted_by_runs(github, conclusions, is_third):
    answer = {"workflow_runs": [{"conclusion": conclusion} for conclusion in conclusions]}
    done = github.run("gpu-nightly/streak", "Count", [("gpu-nightly.yml/runs", answer)])
    assert done.returncode == 0, done.stderr
    assert github.output("is_third") == is_third


def tell(github: GitHub, code: str, open_issues: list[int], **files: str) -> list[list[Any]]:
    (github.directory / "night").mkdir()
    for name, text in files.items():
        (github.directory / "night" / f"{name}.md").write_text(text)
    answers = [("issue list", [{"number": number} for number in open_issues])]
    done = github.run("gpu-nightly/issue", "Tell", answers, CODE=code, RUN_URL="https://run", GH_REPO=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return [call for call in github.calls if call[0][0] == "issue"]


@needs_jq
def test_a_change_opens_an_issue_with_its_own_title(github):
    [[arguments, body]] = tell(github, "1", [], issue="# Batch 8 takes 3 % more\n\n| a | b |\n", summary="modes")
    assert arguments[1:] == [
        "create",
        "--title",
        "Batch 8 takes 3 % more",
        "--label",
        "nightly-change",
        "--body-file",
        "body.md",
    ]
    assert body == "\n| a | b |\n\n[The night's run](https://run)\n"


@needs_jq
def test_a_change_while_another_is_open_is_added_to_that(github):
    [[arguments, body]] = tell(github, "1", [12], issue="Batch 8 takes 3 % more\nthe table", summary="modes")
    assert arguments[1:3] == ["comment", "12"]
    assert "the table" in body


@needs_jq
@pytest.mark.parametrize("files", [{"summary": "the GPU was busy"}, {}], ids=["dirty", "never begun"])
@pytest.mark.parametrize("code", ["2", ""])
def test_three_nights_that_are_not_clean_open_one_issue(github, code, files):
    [[arguments, body]] = tell(github, code, [], **files)
    assert arguments[1:6] == [
        "create",
        "--title",
        "Nightly: three nights in a row were not clean",
        "--label",
        "nightly-dirty",
    ]
    assert (files.get("summary") or "the run's log says why") in body


@needs_jq
def test_a_fourth_night_says_nothing_while_that_is_open(github):
    assert tell(github, "2", [12], summary="the GPU was busy") == []


# What is kept from night to night


@pytest.fixture
def keep(tmp_path):
    """keep.yml against a repository on disk: what its branch holds after each call."""
    server = tmp_path / "server" / REPOSITORY
    subprocess.run(["git", "init", "--quiet", "--bare", str(server)], check=True)

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=server, check=True, capture_output=True, text=True).stdout

    def push(name: str, **files: str) -> tuple[set[str], int]:
        directory = tmp_path / name
        for file, text in files.items():
            path = directory / "new" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        told = {"BRANCH": "nights", "RUN_URL": "https://run", "GITHUB_REPOSITORY": REPOSITORY, "GH_TOKEN": ""}
        told["GITHUB_SERVER_URL"] = str(tmp_path / "server")
        done = run("keep/keep", "Push", directory, {"gh": "#!/bin/sh\n"}, **told)
        assert done.returncode == 0, done.stderr
        return set(git("ls-tree", "-r", "--name-only", "nights").split()), len(git("rev-list", "nights").split())

    return push


def test_a_branch_is_begun_and_grows_and_loses_nothing(keep):
    assert keep("first", **{"a/1.json": "{}"}) == ({"a/1.json"}, 1)
    assert keep("second", **{"a/2.json": "{}"}) == ({"a/1.json", "a/2.json"}, 2)
    assert keep("third", **{"a/2.json": '{"again": 1}'}) == ({"a/1.json", "a/2.json"}, 3)


def test_only_json_is_kept_and_nothing_new_is_no_commit(keep):
    assert keep("first", **{"1.json": "{}", "run.sh": "", ".git/1.json": ""}) == ({"1.json"}, 1)
    assert keep("second", **{"1.json": "{}"}) == ({"1.json"}, 1)

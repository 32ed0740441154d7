"""What runs by itself may do no more than it must, and runs nothing that cannot be run by hand."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from bench.gate.__main__ import TIERS
from tests.bench.workflows import (
    CALLED,
    COMMANDS,
    FILES,
    JOBS,
    ROOT,
    WORKFLOWS,
    Command,
    Job,
    started_by,
    tox,
    triggers,
)

READS = {"contents": "read"}
#: Every job there is, and all that its token may do.
PERMISSIONS = {
    "ci/tox": READS,
    "ci/gate": READS,
    "gate/gate": READS,
    "bench/gate": READS,
    "bench-comment/read": {"actions": "read"},
    "bench-comment/comment": {"pull-requests": "write"},
    "asv/history": READS,
    "asv/keep": {"contents": "write"},
    "asv/records": READS,
    "asv/site": READS,
    "asv/deploy": {"pages": "write", "id-token": "write"},
    "gpu-nightly/night": READS,
    "gpu-nightly/keep": {"contents": "write"},
    "gpu-nightly/streak": {"actions": "read"},
    "gpu-nightly/issue": {"issues": "write"},
    "keep/keep": {"contents": "write"},
}
PINNED = re.compile(r"uses: (actions/[\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)")
every_job = pytest.mark.parametrize("job", JOBS, ids=[job.id for job in JOBS])
every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS)
#: The program that reads what stands after `--`.
READER = re.compile(r"python -m (bench\.\w+) \{posargs\}")


def steps_of(job: Job, action: str) -> list[dict]:
    return [step for step in job.steps if step.get("uses", "").startswith(action)]


def is_writing(job: Job) -> bool:
    return "write" in job.body["permissions"].values()


# What may be done


def test_no_job_may_do_more_than_the_table_says():
    assert {job.id: job.body.get("permissions") for job in JOBS} == PERMISSIONS


@every_workflow
def test_a_job_that_says_nothing_may_do_nothing(workflow):
    assert WORKFLOWS[workflow]["permissions"] == {}


@every_workflow
def test_every_action_is_githubs_own_and_pinned_by_commit_with_its_version_beside(workflow):
    for line in FILES[workflow].read_text().splitlines():
        if "uses:" in line:
            assert PINNED.search(line) or CALLED.search(line), line.strip()


def test_an_action_has_one_pin_everywhere():
    pins = {pin for path in FILES.values() for pin in PINNED.findall(path.read_text())}
    repositories = {"/".join(action.split("/")[:2]) for action, _, _ in pins}
    assert len({(commit, version) for _, commit, version in pins}) == len(repositories)


def test_what_is_called_is_there_and_is_called_by_nothing_but_us():
    called = {job.calls for job in JOBS if "uses" in job.body}
    assert called == {name for name in WORKFLOWS if "workflow_call" in triggers(name)}
    assert all(triggers(name) == {"workflow_call"} for name in called)


# What a stranger's code can reach


def test_what_a_pull_request_starts_reads_the_repository_and_nothing_else():
    started = started_by("pull_request")
    assert {job.id for job in started} == {"ci/tox", "ci/gate", "bench/gate", "gate/gate"}
    assert all(job.body["permissions"] == READS for job in started)
    assert all("self-hosted" not in job.body.get("runs-on", "") for job in started)


def test_nothing_has_a_secret_and_no_pull_request_is_started_with_our_rights():
    for name, path in FILES.items():
        assert "secrets" not in path.read_text()
        assert "pull_request_target" not in triggers(name)


@every_job
def test_a_token_is_named_only_where_something_is_written_or_asked_of_github_and_never_left_in_a_checkout(job):
    has_token = "github.token" in str(job.body)
    assert not has_token or is_writing(job) or job.body["permissions"] == {"actions": "read"}
    for step in steps_of(job, "actions/checkout"):
        assert step["with"]["persist-credentials"] == "false"


@every_job
def test_a_token_that_writes_is_never_near_the_projects_code(job):
    if is_writing(job):
        assert not steps_of(job, "actions/checkout")
        assert not [command for command in COMMANDS if command.job is job]
        assert not re.search(r"\bpip\b", str(job.steps))


def test_what_runs_after_another_workflow_checks_nothing_out_and_unpacks_nothing():
    after = [job for job in JOBS if "workflow_run" in triggers(job.workflow)]
    assert {name for job in after for name in WORKFLOWS[job.workflow]["on"]["workflow_run"]["workflows"]} == {
        WORKFLOWS["bench"]["name"]
    }
    for job in after:
        assert all(set(step) <= {"name", "id", "env", "run"} for step in job.steps)


@every_job
def test_no_script_is_written_by_an_event(job):
    """Whatever it says comes in by the environment, where it is no code."""
    for step in job.steps:
        assert "${{" not in step.get("run", "")


@every_job
def test_no_pull_request_writes_a_cache_and_nothing_that_writes_reads_one(job):
    for step in job.steps:
        used = step.get("uses", "")
        assert not used.startswith("actions/cache@")  # which does both
        assert "cache" not in (step.get("with", {}) if used.startswith("actions/setup-") else {})
        if used.startswith("actions/cache/save@"):
            assert step["if"].startswith("github.event_name == 'push' && ")
        if used.startswith("actions/cache/"):
            assert triggers(job.workflow) == {"pull_request", "push"}


# How it ends


@every_job
def test_every_job_ends_by_itself_and_a_script_at_its_first_failure(job):
    if job.calls:
        return  # the jobs of that workflow are asked
    assert 0 < int(job.body["timeout-minutes"]) <= 300
    if any("run" in step for step in job.steps):
        assert (
            WORKFLOWS[job.workflow]["defaults"]["run"]["shell"] == "bash"
        )  # which is -eo pipefail, unlike the default
    assert not any("shell" in step for step in job.steps)


def test_what_a_night_has_measured_is_uploaded_also_when_the_job_is_cut_off():
    """A job that runs into its limit counts as cancelled."""
    (night,) = [job for job in JOBS if job.id == "gpu-nightly/night"]
    uploads = [step for step in night.steps if step.get("uses", "").startswith("actions/upload-artifact@")]
    assert [(step["with"]["name"], step["if"]) for step in uploads] == [("night", "always()"), ("nights", "always()")]


@every_workflow
def test_what_starts_by_itself_does_not_run_beside_itself(workflow):
    if triggers(workflow) != {"workflow_call"}:
        assert WORKFLOWS[workflow]["concurrency"].keys() == {"group", "cancel-in-progress"}


# What runs can be run by hand


def test_ci_runs_what_tox_runs():
    parser = tox()
    told = {environment for command in COMMANDS if command.job.id == "ci/tox" for environment in command.environments}
    assert told >= set(re.split(r"[,\s]+", parser["tox"]["env_list"].strip()))


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: f"{command.job.id}: {' '.join(command.arguments[:3])}"
)
def test_whatever_runs_is_an_environment_of_tox_or_a_command_of_bench_that_knows_its_flags(command: Command):
    parser = tox()
    for environment in command.environments:
        assert parser.has_section(f"testenv:{environment}"), environment
    arguments = command.arguments
    if arguments[:2] == ["python", "-m"]:
        module, arguments = arguments[2], arguments[3:]
    elif arguments:
        read_by = READER.search(parser[f"testenv:{command.environment}"]["commands"])
        assert read_by, f"{command.environment} reads no arguments"
        module = read_by[1]
    else:
        return
    assert module.startswith("bench.")
    assert importlib.util.find_spec(module), module
    known = set(re.findall(r"(?<![\w-])--?[\w-]+", help_of(module, arguments)))
    assert {word for word in arguments if word.startswith("-")} <= known


def test_the_gate_is_asked_for_tiers_that_it_has():
    asked = [job.body["with"] for job in JOBS if job.calls == "gate"]
    assert {tier for each in asked for tier in each["tiers"].split(",")} == {*TIERS} - {"history"}  # asv.yml shows that
    assert {each["doubt"] for each in asked} <= {"fails", "warns"}


def help_of(module: str, arguments: list[str]) -> str:
    # bench.history hands its flags to asv's command, which knows them.
    program = ["asv", arguments[0]] if module == "bench.history" else [module]
    done = subprocess.run(
        [sys.executable, "-m", *program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

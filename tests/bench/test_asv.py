"""asv's series come from the registry, and a run without all its results does not end as one with them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench import history
from bench.figures import exact_scenarios
from bench.gate import history as tier
from bench.gate import revisions
from bench.gate.children import environment
from bench.scenarios import REGISTRY

#: One of each kind: what there is to track is different for each.
KINDS = ["respx/sync/16", "wire-sync", "profile-tiny", "warm-memory", "step-verl-loop"]

DISCOVER = """
import json, sys
from asv_runner.discovery import disc_benchmarks, update_sys_path
root = sys.argv[1]
update_sys_path(root)
found = [(each.name, each.version, each.setup_cache_key, each.params) for each in disc_benchmarks(root)]
print(json.dumps(found))
"""
TRACK = """
import json, sys
from bench.asv_benchmarks import series
from bench.scenarios import REGISTRY
figures = {name: series._figures(REGISTRY[name]) for name in sys.argv[1:]}
read = lambda name: {metric: series.figure(figures, name, metric) for metric in series.tracked(REGISTRY[name])}
print(json.dumps({name: read(name) for name in figures}))
"""


@pytest.fixture(scope="module")
def installed():
    with revisions.installed(revisions.Revision(".", None)) as python:
        yield python


def in_it(python, program: str, *arguments: str):
    done = subprocess.run(
        [str(python), "-c", program, *arguments], capture_output=True, text=True, env=environment(), cwd=python.parent
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def discovered(installed):
    """As asv finds them: without pytest, and without the checkout on the path."""
    return in_it(installed, DISCOVER, str(revisions.ROOT / "bench" / "asv_benchmarks"))


def test_every_scenario_with_exact_figures_has_its_class_and_its_version(discovered):
    versions = {name.split(".")[1]: version for name, version, _, _ in discovered}
    without = {each.id for each in exact_scenarios() if each.backend == "rubric" or each.id.startswith("respx/process")}
    expected = [each for each in exact_scenarios() if each.id not in {*without, "torch/self-8/1024"}]
    for scenario in expected:
        assert versions[scenario.id.replace("/", "_").replace("-", "_")] == str(scenario.version)


def test_all_series_of_a_commit_are_read_from_one_run(discovered):
    assert len({cache for _, _, cache, _ in discovered}) == 1
    assert None not in {cache for _, _, cache, _ in discovered}


def test_memory_by_batch_size_is_a_series_of_its_own_predicted_and_measured(discovered):
    series = {name.split(".", 1)[1]: params for name, _, _, params in discovered if "Memory" in name}
    assert series.keys() == {
        "MemoryByBatchSize.track_predicted_peak",
        "CudaMemoryByBatchSize.track_peak_allocated",
        "CudaMemoryByBatchSize.track_peak_reserved",
    }
    assert all(params == [["1", "2", "4", "8", "16"]] for params in series.values())


def test_every_series_has_a_number_to_show(installed):
    tracked = in_it(installed, TRACK, *KINDS)
    assert tracked["respx/sync/16"] == {"makespan": 32.0, "requests": 16}
    assert tracked["wire-sync"] == {"requests": 3, "connections opened": 1}
    assert tracked["warm-memory"] == {"requests": 0}
    assert all(tracked[kind]["makespan"] > 0 for kind in ("profile-tiny", "step-verl-loop"))


def test_the_checkout_itself_is_refused_in_place_of_an_installed_revision():
    """Else every commit would show what is checked out now."""
    command = [sys.executable, "-c", "import bench.asv_benchmarks"]
    done = subprocess.run(command, cwd=revisions.ROOT, capture_output=True, text=True)
    assert "in place of the revision to be measured" in done.stderr.splitlines()[-1]


# Results are counted


def write_results(directory, commit: str, results: dict[str, list[float | None]], date: int = 0) -> None:
    (directory / "machine").mkdir(parents=True, exist_ok=True)
    (directory / "benchmarks.json").write_text(json.dumps({"a": {}, "b": {}, "version": 2}))
    document = {"commit_hash": commit, "date": date, "result_columns": ["result", "params"]}
    document["results"] = {name: [values, []] for name, values in results.items()}
    (directory / "machine" / f"{commit[:8]}-environment.json").write_text(json.dumps(document))


COMMIT = "0123456789abcdef"


@pytest.mark.parametrize(
    ("results", "missing"),
    [
        ({"a": [1.0], "b": [2.0]}, ()),
        ({"a": [1.0], "b": [float("nan")]}, ()),  # "n/a"
        ({"a": [1.0], "b": [None]}, ("b",)),
        ({"a": [1.0], "b": [1.0, None]}, ("b",)),
        ({"a": [1.0]}, ("b",)),
        ({}, ("a", "b")),
    ],
)
def test_a_series_without_a_result_is_missing(tmp_path, results, missing):
    write_results(tmp_path, COMMIT, results)
    found = history.count(tmp_path, COMMIT)
    assert found.missing == missing
    assert found.is_complete is not bool(missing)


def test_a_commit_without_any_result_is_incomplete(tmp_path):
    assert not history.count(tmp_path, COMMIT).is_complete
    write_results(tmp_path, "f" * 16, {"a": [1.0], "b": [2.0]})
    assert history.count(tmp_path, COMMIT).missing == ("a", "b")


def test_only_the_series_that_were_asked_for_are_missed(tmp_path):
    write_results(tmp_path, COMMIT, {"a": [1.0]})
    assert history.count(tmp_path, COMMIT, ["^a$"]).is_complete


@pytest.fixture
def run(monkeypatch, tmp_path):
    """bench.history with an asv that writes what the test says, and ends with 0."""
    commands: list[tuple[str, ...]] = []

    def main(*arguments: str, results=None) -> tuple[int, list[tuple[str, ...]]]:
        def asv(*told: str) -> int:
            commands.append(told)
            if told[0] in history.MEASURING and results is not None:
                write_results(tmp_path, COMMIT, results)
            return 0

        monkeypatch.setattr(history, "_asv", asv)
        return history.main(arguments), commands

    monkeypatch.setattr(history, "RESULTS", tmp_path)
    monkeypatch.setattr(history, "_git", lambda *arguments: COMMIT)
    return main


def test_a_complete_run_ends_as_asv_does(run):
    code, commands = run("run", "HEAD~1..HEAD", results={"a": [1.0], "b": [1.0]})
    assert code == 0
    assert commands[-1][:2] == ("run", "HEAD~1..HEAD")


@pytest.mark.parametrize("results", [None, {"a": [1.0], "b": [None]}])
def test_a_run_that_measured_nothing_or_too_little_ends_with_2_though_asv_ended_with_0(run, results, capsys):
    assert run("run", "HEAD~1..HEAD", results=results)[0] == history.INCOMPLETE
    assert "not everything was measured" in capsys.readouterr().err


def test_what_asv_chose_by_itself_is_counted_too(run):
    assert run("run", "EXISTING", results={"a": [1.0], "b": [None]})[0] == history.INCOMPLETE
    assert run("run", "EXISTING", results=None)[0] == history.INCOMPLETE


@pytest.fixture
def branch(monkeypatch, tmp_path_factory) -> list[str]:
    """A repository with a merge, for bench.history to look at: what its branch has walked through, newest first."""
    repository = tmp_path_factory.mktemp("repository")

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost", *arguments]
        return subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout

    def commit(message: str) -> str:
        git("commit", "--quiet", "--allow-empty", "--message", message)
        return git("rev-parse", "HEAD").strip()

    git("init", "--quiet", "--initial-branch", "main")
    first = commit("first")
    git("checkout", "--quiet", "-b", "aside")
    commit("aside")
    git("checkout", "--quiet", "main")
    second = commit("second")
    git("merge", "--quiet", "--no-ff", "aside")
    monkeypatch.setattr(history, "_git", git)
    return [git("rev-parse", "HEAD").strip(), second, first]


def test_a_range_over_a_merge_has_the_commits_that_asv_measures(branch):
    assert history.asked(["run", f"{branch[2]}..HEAD"]) == (branch[:2], [])


@pytest.mark.parametrize(
    ("measured", "new"),
    [
        ([], slice(0, 1)),  # not all that ever was
        (["f" * 40], slice(0, 1)),  # nor where the history was written anew
        ([2], slice(0, 2)),
        ([1, 2], slice(0, 1)),
        ([1], slice(0, 1)),
    ],
)
def test_new_is_whatever_came_after_the_newest_commit_with_results(run, branch, monkeypatch, tmp_path, measured, new):
    monkeypatch.setattr(history, "count", lambda results, commit, patterns: history.Count(commit, 0, ()))
    for each in measured:
        write_results(tmp_path, branch[each] if isinstance(each, int) else each, {"a": [1.0], "b": [1.0]})
    code, commands = run("run", "NEW")
    assert code == history.INCOMPLETE  # since each of them must have results, and this asv gives none
    assert history.asked(commands[-1]) == (branch[new], [])


def test_a_night_without_a_new_commit_is_no_failure_and_asks_asv_for_nothing(run, branch, tmp_path, capsys):
    write_results(tmp_path, branch[0], {"a": [1.0], "b": [1.0]})
    assert run("run", "NEW") == (0, [])
    assert "nothing is new" in capsys.readouterr().err


def test_any_other_command_is_asvs_own(run):
    assert run("publish") == (0, [("publish",)])


# The history tier of the gate


def test_a_step_up_is_told_with_its_commit_and_decides_nothing(tmp_path):
    for number in range(12):
        value = 36.0 if number < 6 else 40.0
        write_results(tmp_path, f"{number:x}" * 16, {"a": [value], "b": [5.0]}, date=number)
    assert tier.advise(tmp_path) == ["a stepped up from 36 to 40 at 6666666666"]


def test_no_step_and_no_history_are_told_apart(tmp_path):
    assert tier.advise(tmp_path) == ["there is none yet: tox -e asv -- run HEAD~3..HEAD"]
    for number in range(6):
        write_results(tmp_path, f"{number:x}" * 16, {"a": [36.0]}, date=number)
    assert tier.advise(tmp_path) == ["no step up in 1 series"]


def test_every_scenario_of_the_registry_is_measured_or_left_out_for_a_reason():
    left_out = set(REGISTRY) - {scenario.id for scenario in exact_scenarios()}
    families = {name.split("/")[0].split("-")[0] for name in left_out}
    of_a_real_clock = {"loopback", "trl", "verl", "paired", "reject", "calibrated", "nightly"}
    assert families == {"real", "vllm", "torch", *of_a_real_clock}
    assert {name for name in left_out if name.startswith("torch")} == {
        f"torch/self-{size}/1024" for size in (1, 2, 4, 16)
    }

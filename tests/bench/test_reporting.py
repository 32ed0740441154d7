"""Records and the summary: what a benchmark session leaves behind and shows, however it ends."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import records, summary
from bench.records import ROOT
from bench.runner import UnequalWork, run, stage_for
from bench.scenarios import GRID, MODES, REGISTRY, SIZES

IDS = ("respx/asyncio-httpx/16", "respx/sync/16", "naive-1024", "async-1024", "refused-crowd", "gpu-wait-sync")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    found = summary.Results(tmp_path_factory.mktemp("deep") / "er" / "records.jsonl")
    for id in IDS:
        with stage_for(REGISTRY[id]) as stage:
            found.add(run(REGISTRY[id], stage))
    return found


def test_every_mode_has_every_size_on_every_backend_that_can_carry_it():
    for backend in ("respx", "loopback", "vllm", "real"):
        modes = {s.mode for s in GRID if s.backend == backend}
        assert modes <= set(MODES) - {"self"}
        assert {(s.mode, s.n) for s in GRID if s.backend == backend} == {(m, n) for m in modes for n in SIZES}


def test_every_record_is_in_the_file_as_soon_as_it_is_known(results):
    assert records.read(results.path) == results.recorded


def test_every_record_says_when_and_where_it_comes_from(results):
    for each in results.recorded:
        assert each.commit
        assert {"python", "cpu", "gpu", "torch", "vllm"} <= each.environment.keys()
        assert each.direction in ("higher", "lower", "equal")
        assert (each.run, each.time[-1]) == (records.RUN, "Z")


def test_virtual_seconds_are_called_so_and_everything_in_virtual_time_is_exact(results):
    assert {each.unit for each in results.recorded if each.metric == "makespan"} == {"virtual s"}
    assert all(each.exact for each in results.recorded)


def test_over_sockets_counts_are_exact_and_times_are_not():
    grid, wire = REGISTRY["loopback/asyncio/16"], REGISTRY["wire-asyncio"]
    assert [records.is_exact(grid, metric) for metric in ("requests", "peak in flight", "makespan")] == [
        True,
        False,
        False,
    ]
    assert [records.is_exact(wire, metric) for metric in ("connections opened", "peak in flight")] == [True, True]
    for id in ("real/sync/16", "vllm/sync/16", "vllm-offline/self/16"):
        assert not records.is_exact(REGISTRY[id], "requests")


def test_a_line_that_was_cut_off_costs_no_other_record(results, tmp_path):
    path = tmp_path / "records.jsonl"
    records.write(results.recorded[:2], path)
    path.write_bytes(path.read_bytes()[:-9])  # as a writer that was killed leaves it
    records.write(results.recorded[2:4], path)
    assert records.read(path) == [results.recorded[0], *results.recorded[2:4]]


def test_records_from_before_there_was_a_time_are_read(results, tmp_path):
    old = {
        name: value for name, value in dataclasses.asdict(results.recorded[0]).items() if name not in ("time", "run")
    }
    (tmp_path / "old.jsonl").write_text(json.dumps(old) + "\n")
    (read,) = records.read(tmp_path / "old.jsonl")
    assert (read.time, read.run) == ("", "")


def test_the_speed_up_is_over_sync_of_the_same_size_whichever_came_first(results):
    speed_ups = {each.scenario: each.value for each in results.recorded if each.metric == "speed-up over sync"}
    assert speed_ups == {"respx/asyncio-httpx/16": 16.0}


def test_a_disk_that_cannot_be_written_is_told_and_costs_no_measurement(results, tmp_path):
    found = summary.Results(tmp_path)  # a directory
    found.add(results.runs["naive-1024"])
    assert list(found.runs) == ["naive-1024"]
    assert any("records were not written" in line and "--records" in line for line in summary.render(found))


def test_the_summary_shows_the_claim_what_is_here_and_the_ideal(results):
    (line,) = [line for line in summary.render(results) if line.startswith("async batch, no cache")]
    assert "16×" in line
    assert "56.9× (2048 s → 36 s)" in line


def test_every_column_is_explained_in_one_line_below_the_tables(results):
    lines = list(summary.render(results))
    headings = {name for title, names, rows in summary._tables(results) if rows for name in names} - {"scenario"}
    assert {"virtual s", "pause", "too soon", "claimed", "blocked", "figure"} <= headings
    for name in headings:
        (explained,) = [line for line in lines if line.strip().startswith(f"{name}: ")]
        assert lines.index(explained) > max(lines.index(line) for line in lines if line.startswith("──"))


def test_unequal_work_is_refused_before_it_is_recorded_or_shown(results):
    found = summary.Results()
    found.add(results.runs["respx/sync/16"])
    recorded = len(found.recorded)
    for change, complaint in [({"digest": "other"}, "differently"), ({"requests": 17}, "17 requests")]:
        with pytest.raises(UnequalWork, match=complaint):
            found.add(dataclasses.replace(results.runs["respx/asyncio-httpx/16"], **change))
    assert len(found.recorded) == recorded
    assert not any("asyncio-httpx" in line for line in summary.render(found))


def test_the_same_samples_must_be_judged_alike_on_every_backend(results):
    """Not only the modes of one table."""
    assert REGISTRY["respx/sync/16"].workload == REGISTRY["loopback/process/16"].workload
    assert REGISTRY["respx/sync/16"].workload != REGISTRY["async-1024-cached"].workload
    found = summary.Results()
    found.add(results.runs["respx/sync/16"])
    elsewhere = dataclasses.replace(
        results.runs["respx/sync/16"], scenario=REGISTRY["loopback/sync/16"], digest="other"
    )
    with pytest.raises(UnequalWork, match=r"loopback/sync/16 and respx/sync/16"):
        found.add(elsewhere)


#: What a session is told to do to itself when the first of its benchmarks has passed.
ENDINGS = {"Ctrl-C": "os.kill(os.getpid(), signal.SIGINT)", "a crash": "os._exit(9)"}


def bench_session(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "bench/", "--benchmark-only", "-q", "-p", "no:cacheprovider", *arguments]
    # Whoever runs the tests in several processes does not run this session so: benchmarks would be off.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=inherited | environment)


def test_a_session_writes_records_and_ends_with_the_summary(tmp_path):
    path = tmp_path / "records.jsonl"
    done = bench_session("-k", "respx/sync/16 or respx/asyncio-httpx/16", f"--records={path}")
    assert done.returncode == 0, done.stdout
    summed_up = done.stdout[done.stdout.index("── respx n=16, in virtual time") :]
    assert "16.0×" in summed_up
    # pytest-benchmark's own table is of the same seconds: sync takes 16 × 2 s, asyncio 2 s.
    own = done.stdout[: done.stdout.index("── respx n=16")]
    assert "respx n=16, virtual seconds" in own
    assert "32.0000" in own
    metrics = {record.metric for record in records.read(path)}
    assert {"makespan", "requests", "verdict digest", "speed-up over sync", "peak in flight"} <= metrics


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_measured_before_the_end_is_not_lost(tmp_path, ending):
    """The summary still shows what there is, unless there is nobody left to print it."""
    at_the_end = f"def pytest_runtest_logreport(report):\n    if report.when == 'teardown': {ENDINGS[ending]}\n"
    (tmp_path / "ending.py").write_text(f"import os, signal\n{at_the_end}")
    path = tmp_path / "records.jsonl"
    done = bench_session(
        "-k", "respx/sync/16 or respx/asyncio-httpx/16", f"--records={path}", "-p", "ending", PYTHONPATH=str(tmp_path)
    )
    assert done.returncode == (2 if ending == "Ctrl-C" else 9), done.stdout + done.stderr
    assert {record.scenario for record in records.read(path)} == {"respx/sync/16"}
    assert ("── respx n=16" in done.stdout) == (ending == "Ctrl-C")


def test_nothing_is_skipped_without_a_reason():
    done = bench_session("-rs", "-k", "real_endpoint or test_padding")
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert any("give --base-url and --model" in line for line in skipped)
    assert not any("empty parameter set" in line for line in skipped)


def test_a_benchmark_may_take_longer_than_a_test(tmp_path):
    """The guard against hanging tests is theirs alone."""
    quick = {"REWARDCORE_TEST_GUARD_SECONDS": "0.01"}
    done = bench_session("-k", "respx/sync/16", f"--records={tmp_path / 'records.jsonl'}", **quick)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_test_that_hangs_shows_where_and_ends_the_run():
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/bench/hanging.py"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    quick = inherited | {"REWARDCORE_TEST_GUARD_SECONDS": "0.5"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=quick)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "hanging.py" in done.stderr


def test_every_test_environment_is_under_the_guard():
    """It is in tests/conftest.py, which every path below tests/ loads; nothing there leaves conftests out."""
    lines = [
        line.split() for line in (ROOT / "tox.ini").read_text().splitlines() if line.startswith("commands = pytest")
    ]
    tested = [word for words in lines for word in words if word.startswith("tests")]
    assert {Path(path).parts[0] for path in tested} == {"tests"}
    assert {"tests/core", "tests/self_judge", "tests/trl", "tests/verl", "tests/vllm"} <= set(tested)
    assert not any("--noconftest" in words for words in lines)
    assert "faulthandler_timeout" not in (ROOT / "pyproject.toml").read_text()

"""Records and the summary: what a benchmark session leaves behind and shows."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from bench import records, summary
from bench.real import Budget, RealEndpoint
from bench.records import ROOT
from bench.runner import UnequalWork, run, stage_for
from bench.scenarios import GRID, MODES, REGISTRY, SIZES
from rewardcore.http import retry
from rewardcore.testing.server_process import SimulatedServer


@pytest.fixture(scope="module")
def results():
    found = summary.Results()
    for id in ("respx/sync/16", "respx/asyncio-httpx/16", "naive-1024", "async-1024"):
        with stage_for(REGISTRY[id]) as stage:
            found.add(run(REGISTRY[id], stage))
    return found


def test_every_mode_has_every_size_on_every_backend_that_can_carry_it():
    for backend in ("respx", "loopback", "real"):
        modes = {s.mode for s in GRID if s.backend == backend}
        assert modes <= set(MODES) - {"self"}
        assert {(s.mode, s.n) for s in GRID if s.backend == backend} == {(m, n) for m in modes for n in SIZES}


def test_a_record_survives_its_json_line(results, tmp_path):
    written = list(results.records())
    records.write(written, tmp_path / "deep" / "records.jsonl")
    assert records.read(tmp_path / "deep" / "records.jsonl") == written


def test_every_record_says_where_it_comes_from(results):
    for each in results.records():
        assert each.commit
        assert {"python", "cpu", "gpu", "torch", "vllm"} <= each.environment.keys()
        assert each.direction in ("higher", "lower", "equal")


def test_the_speed_up_is_over_sync_of_the_same_size(results):
    speed_ups = {r.scenario: r.value for r in results.records() if r.metric == "speed-up over sync"}
    assert speed_ups["respx/asyncio-httpx/16"] == 16.0


def test_the_summary_shows_the_claim_there_here_and_ideal(results):
    (line,) = [line for line in summary.render(results) if line.startswith("async batch, no cache")]
    assert "16×" in line
    assert "56.9× (2048 s → 36 s)" in line


def test_the_summary_refuses_unequal_work(results):
    broken = summary.Results(dict(results.runs))
    broken.add(dataclasses.replace(results.runs["respx/asyncio-httpx/16"], digest="other"))
    with pytest.raises(UnequalWork):
        list(summary.render(broken))


def bench_session(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "bench/", "--benchmark-only", "-q", "-p", "no:cacheprovider", *arguments]
    # Whoever runs the tests in several processes does not run this session so: benchmarks would be off.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)


def test_a_session_writes_records_and_ends_with_the_summary(tmp_path):
    path = tmp_path / "records.jsonl"
    done = bench_session("-k", "respx/sync/16 or respx/asyncio-httpx/16", f"--records={path}")
    assert done.returncode == 0, done.stdout
    assert "16.0×" in done.stdout[done.stdout.index("── respx n=16") :]
    metrics = {json.loads(line)["metric"] for line in path.read_text().splitlines()}
    assert {"makespan", "requests", "verdict digest", "speed-up over sync", "peak in flight"} <= metrics


def test_base_url_without_model_names_both_flags():
    done = bench_session("--base-url", "http://127.0.0.1:9/v1")
    assert done.returncode != 0
    assert "--base-url and --model go together" in done.stdout + done.stderr


def test_a_real_endpoint_is_estimated_and_capped(judge_server):
    real = RealEndpoint.connect(judge_server.base_url, "judge", "NO_KEY_NEEDED", Budget(100, 64))
    assert sum(scenario.requests for scenario in real.scenarios) <= 100
    assert real.left_out
    assert f"{sum(s.requests for s in real.scenarios)} requests" in real.estimate()
    assert "--max-requests 100" in real.estimate()


def test_a_wrong_model_name_is_a_clear_error():
    with (
        SimulatedServer(model="judge") as server,
        pytest.raises(ValueError, match=r"model 'jugde'.*check the model's name"),
    ):
        RealEndpoint.connect(server.base_url, "jugde", "NO_KEY_NEEDED", Budget(100, 64))


def test_an_unreachable_base_url_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(retry, "BASE_DELAY", 0.001)
    with SimulatedServer() as server:
        gone = server.base_url
    with pytest.raises(ValueError, match=r"no connection to 127\.0\.0\.1:\d+"):
        RealEndpoint.connect(gone, "judge", "NO_KEY_NEEDED", Budget(100, 64))


def test_a_session_against_a_real_endpoint_runs_its_scenarios(tmp_path, judge_server):
    flags = ("--base-url", judge_server.base_url, "--model", "judge", "--max-requests", "40")
    done = bench_session("-k", "real_endpoint", f"--records={tmp_path / 'records.jsonl'}", *flags)
    assert done.returncode == 0, done.stdout
    assert "real endpoint http://127.0.0.1" in done.stdout
    # Two scenarios of 16 fit below 40, and one request was the check before them.
    assert judge_server.stats().requests == 33

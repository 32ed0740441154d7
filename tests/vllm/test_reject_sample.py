"""`rewardcore reject-sample` with a real vLLM server, which the command starts and stops by itself."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewardcore.serving.port import free_port
from tests.modes.hostile_server import eventually
from tests.serving.conftest import is_alive
from tests.vllm.conftest import ARGUMENTS, processes_of

CHOICES = [f"<answer>{number}</answer>" for number in range(1, 6)]
ROWS, ROLLOUTS = 60, 4


class Sampling:
    """The command, in a process of its own, on a port of its own."""

    def __init__(self, directory: Path, model: Path) -> None:
        self.port = free_port(0)
        self.output = directory / "reject_sampling_results" / "policy"
        rows = [{"problem": f"How good is picture {number}?", "answer": 1 + number % 5} for number in range(ROWS)]
        (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        self._directory = directory
        self._arguments = [
            "--model-path", str(model), "--model-name", "policy", "--model-port", str(self.port),
            "--data", "rows.jsonl", "--num-rollout", str(ROLLOUTS), "--concurrency", "2", "--max-tokens", "48",
            "--extra-body", json.dumps({"structured_outputs": {"choice": CHOICES}}),
            *(f"--vllm-arg={argument}" for argument in ARGUMENTS),
        ]  # fmt: skip

    @contextlib.contextmanager
    def begun(self) -> Iterator[subprocess.Popen[str]]:
        """A test that fails leaves no command behind, and that no server."""
        code = "from rewardcore.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "reject-sample", *self._arguments],
            cwd=self._directory,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def kept(self) -> list[dict[str, Any]]:
        path = self.output / "results.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_that_is_terminated_leaves_no_process_goes_on_and_is_reported(tiny_judge: Path, tmp_path: Path) -> None:
    sampling = Sampling(tmp_path, tiny_judge)
    with sampling.begun() as process:
        eventually(lambda: process.poll() is not None or len(sampling.kept()) >= 3, "three samples are kept", 300.0)
        names = processes_of(sampling.port)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143, said
    assert "run the same command again to go on" in said.splitlines()[-1]
    assert any("EngineCore" in name for name in names.values()), names
    assert not {pid: name for pid, name in names.items() if is_alive(pid)}

    before = sampling.kept()
    assert 3 <= len(before) < ROWS
    with sampling.begun() as process:
        out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert f"policy: {len(before)} of {ROWS} samples were done before, and are kept" in out
    assert sampling.kept()[: len(before)] == before
    assert not processes_of(sampling.port)

    results = json.loads((sampling.output / "reject_sampling_results.json").read_bytes())
    assert [row["index"] for row in results] == list(range(ROWS))
    for row in results:
        assert row["num_valid_rollouts"] == row["num_total_rollouts"] == ROLLOUTS
        assert row["best_response"]["response"] in CHOICES
        assert (
            row["min_error"] == min(row["all_errors"]) == abs(row["best_response"]["pred_value"] - row["ground_truth"])
        )
    assert len({error for row in results for error in row["all_errors"]}) > 1, "draws of their own"
    assert "total            60" in (sampling.output / "statistics.txt").read_text()

"""Rows to sample, and the command that samples them, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rewardcore.testing import SimulatedServer
from tests import commands

VARIABLES = (
    "MODEL_PATH", "MODEL_NAME", "NUM_ROLLOUT", "TEMPERATURE", "MAX_RETRIES", "CONCURRENCY", "MAX_DATA", "MODEL_PORT",
)  # fmt: skip
COMMAND = "from rewardcore.cli import main; main()"


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def problems(count: int) -> list[dict[str, Any]]:
    """The truth of each is its place, modulo 5."""
    return [{"problem": f"How good is picture {place}?", "answer": str(place % 5)} for place in range(count)]


class Command:
    """`rewardcore reject-sample` in a directory of its own; whoever is asked says `<answer>2</answer>`."""

    def __init__(self, directory: Path, server: SimulatedServer) -> None:
        self.directory = directory
        self.server = server
        self.output = directory / "reject_sampling_results"
        server.when("").says("<answer>2</answer>")

    def arguments(self, *arguments: object, code: str = COMMAND) -> list[str]:
        return [sys.executable, "-c", code, "reject-sample", *map(str, arguments)]

    def environment(self, **variables: str) -> dict[str, str]:
        root = str(Path(__file__).resolve().parents[2])
        kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        return kept | {"PYTHONPATH": root} | variables

    def __call__(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """With the rows of `rows.jsonl` and the server of the test, unless the arguments say otherwise."""
        there = ["--base-url", self.server.base_url, "--model-name", "policy", "--data", "rows.jsonl"]
        return self.alone(*there, *arguments, **variables)

    def alone(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment(**variables)
        return commands.rewardcore("reject-sample", *arguments, cwd=self.directory, env=environment)

    def rows(self, rows: list[dict[str, Any]] | int) -> None:
        write_rows(self.directory / "rows.jsonl", problems(rows) if isinstance(rows, int) else rows)

    def results(self, name: str = "policy") -> list[dict[str, Any]]:
        return json.loads((self.output / name / "reject_sampling_results.json").read_bytes())

    def kept(self, name: str = "policy") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.output / name / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def command(tmp_path: Path, judge_server: SimulatedServer) -> Command:
    return Command(tmp_path, judge_server)

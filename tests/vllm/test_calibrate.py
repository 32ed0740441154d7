"""A real vLLM server, predicted from some hundred requests, and then asked: a ratio of two figures of one run."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

import rewardcore as rc
from bench.calibrate.__main__ import main

#: Short, for a context of 512 tokens.
RUBRIC = """
template = "{response} </{token}> End with <score>X</score>, X from 1 to 10."
scale = [1, 10]
tag = "score"
"""
#: A server on a CPU shares its cores with whatever else runs there, which moves single rounds: the median counts.
ROUNDS = 3


def test_the_makespan_of_1024_at_60_at_once_is_predicted_to_a_quarter(
    endpoint: rc.Endpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rubric = tmp_path / "short.toml"
    rubric.write_text(RUBRIC)
    arguments = ["--base-url", endpoint.base_url, "--model", endpoint.model, "--max-tokens", "48", "--json"]
    ratios: list[float] = []
    for _ in range(ROUNDS):
        assert main([*arguments, "--rubric", str(rubric), "--verify", "60"]) == 0
        (largest,) = (each for each in json.loads(capsys.readouterr().out)["observed"] if each["n"] == 1024)
        ratios.append(largest["predicted"] / largest["seconds"])
    assert 0.75 <= median(ratios) <= 1.25, ratios

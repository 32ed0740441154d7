"""docs/memory.md shows what its command prints, of models whose sizes are those that their authors give."""

import re
from pathlib import Path

import pytest
import torch

from bench.memory_table import MODELS, tables
from rewardcore.memory.predicted import predict

PAGE = (Path(__file__).parents[2] / "docs" / "memory.md").read_text()


def test_the_page_shows_what_the_command_prints() -> None:
    """Not equal any more? Another transformers or torch is installed: run the command, and read the page again."""
    assert [line for line in tables() if line not in PAGE.splitlines()] == []


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Qwen2.5-0.5B", 494e6), ("Qwen2.5-1.5B", 1544e6), ("Qwen2.5-7B", 7616e6), ("Llama-3.1-8B", 8030e6)],
)
def test_the_models_have_the_size_that_they_are_known_by(name: str, parameters: float) -> None:
    (peak,) = predict(MODELS[name], [1], 8, 1, torch.bfloat16)
    assert peak.weights / 2 == pytest.approx(parameters, rel=0.001)


def test_what_the_page_says_of_the_rule_is_what_its_tables_say() -> None:
    short, long = (
        {int(row[0]): list(map(int, row[1:])) for row in re.findall(r"\| (\d+) GiB" + r" \| (\d+)" * 5, part)}
        for part in PAGE.split("The largest batch at")[1:]
    )
    assert all(row[3:] == [0, 0] for memory, row in (short | long).items() if memory <= 16)
    assert all(fits >= row[0] for row in short.values() for fits in row[1:] if fits)
    assert max(fits / row[0] for row in short.values() for fits in row[1:]) // 1 == 45
    assert long[24][0] == 8
    assert long[24][3:] == [4, 3]

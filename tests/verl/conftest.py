from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def model(tiny_judge: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_judge, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer(tiny_judge: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_judge)


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's rollout casts to bfloat16; without it, texts can be compared exactly."""
    monkeypatch.setattr(torch, "autocast", lambda **_: torch.no_grad())

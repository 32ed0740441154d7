"""Memory and speed per batch size, measured on a CUDA GPU with the real weights; the counterpart of a prediction."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .release import release_memory


@dataclass(frozen=True, slots=True)
class Measured:
    """`allocated` compares with the predicted peak; `reserved` is what the GPU really gave up for it."""

    batch_size: int
    allocated: int
    reserved: int
    tokens_per_second: float


def measure(model: Any, batch_sizes: Iterable[int], prompt_tokens: int, new_tokens: int) -> list[Measured]:
    """One left-padded batch per size, with replies of full length; ends before the first size that does not fit."""
    measured = []
    for batch_size in batch_sizes:
        try:
            measured.append(_measure_one(model, batch_size, prompt_tokens, new_tokens))
        except torch.cuda.OutOfMemoryError:
            break
        finally:
            release_memory()
    return measured


def _measure_one(model: Any, batch_size: int, prompt_tokens: int, new_tokens: int) -> Measured:
    mask = torch.ones(batch_size, prompt_tokens, dtype=torch.long, device=model.device)
    mask[:, : min(1, prompt_tokens - 1)] = 0
    release_memory()
    torch.cuda.reset_peak_memory_stats(model.device)
    torch.cuda.synchronize(model.device)
    started = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            input_ids=torch.ones_like(mask),
            attention_mask=mask,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            do_sample=False,
        )
    torch.cuda.synchronize(model.device)
    return Measured(
        batch_size,
        torch.cuda.max_memory_allocated(model.device),
        torch.cuda.max_memory_reserved(model.device),
        batch_size * new_tokens / (time.perf_counter() - started),
    )

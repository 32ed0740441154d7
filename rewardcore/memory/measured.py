"""Memory and speed per batch size, measured on a CUDA GPU with the real weights; the counterpart of a prediction.

Measuring fills the GPU until a batch does not fit, so it is done where nobody else is on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ..failures import ConfigurationError
from .neighbours import processes, uuid_of
from .release import is_out_of_memory, release_memory

#: Bytes in use before anything is loaded: CUDA's own for this process, and perhaps a screen's. More is somebody's work.
_NOBODY = 2**30


@dataclass(frozen=True, slots=True)
class Measured:
    """`allocated` compares with the predicted peak; `reserved` is what the GPU really gave up for it."""

    batch_size: int
    allocated: int
    reserved: int
    tokens_per_second: float


def check_gpu_is_ours() -> None:
    """Whether the GPU can be filled without harm to anybody."""
    others = processes()  # before torch opens the GPU, and this process is one of them
    if not torch.cuda.is_available():
        raise ConfigurationError(
            f"--measure needs a CUDA GPU, and torch {torch.__version__} sees none; `rewardcore doctor` says why"
        )
    properties = torch.cuda.get_device_properties(0)
    names = [str(process) for process in others if process.gpu == uuid_of(properties)]
    try:
        free, total = torch.cuda.mem_get_info(0)
    except RuntimeError as error:  # on a full GPU there is no room even for asking
        if not is_out_of_memory(error):
            raise
        free, total = 0, properties.total_memory
    used = total - free - torch.cuda.memory_reserved(0)
    if names or used > _NOBODY:
        raise ConfigurationError(
            f"--measure fills the GPU, and somebody else uses this one ({', '.join(names) or 'a process unseen'},"
            f" {used / 2**30:.1f} of {total / 2**30:.1f} GiB in use); wait until it is free, or choose another one with"
            " CUDA_VISIBLE_DEVICES"
        )


def measure(model: Any, batch_sizes: Iterable[int], prompt_tokens: int, new_tokens: int) -> Iterator[Measured]:
    """One left-padded batch per size, with replies of full length; ends before the first size that does not fit."""
    try:
        _generate(model, 1, prompt_tokens, 1)  # the first batch of all also loads kernels, and waits for them
        for batch_size in batch_sizes:
            yield _measure_one(model, batch_size, prompt_tokens, new_tokens)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    finally:
        release_memory()


def _measure_one(model: Any, batch_size: int, prompt_tokens: int, new_tokens: int) -> Measured:
    release_memory()
    torch.cuda.reset_peak_memory_stats(model.device)
    torch.cuda.synchronize(model.device)
    started = time.perf_counter()
    _generate(model, batch_size, prompt_tokens, new_tokens)
    torch.cuda.synchronize(model.device)
    return Measured(
        batch_size,
        torch.cuda.max_memory_allocated(model.device),
        torch.cuda.max_memory_reserved(model.device),
        batch_size * new_tokens / (time.perf_counter() - started),
    )


def _generate(model: Any, batch_size: int, prompt_tokens: int, new_tokens: int) -> None:
    mask = torch.ones(batch_size, prompt_tokens, dtype=torch.long, device=model.device)
    mask[:, : min(1, prompt_tokens - 1)] = 0
    with torch.inference_mode():
        model.generate(
            input_ids=torch.ones_like(mask),
            attention_mask=mask,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
            do_sample=False,
        )

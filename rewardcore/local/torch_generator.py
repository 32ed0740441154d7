"""A transformers model as a generator: left padding, the model's own chat template, one `generate` per batch.

Importing this module imports torch and transformers, so it is imported only when it is used. Settings in the
model's generation_config.json (top_p, repetition penalties) do not apply: a judge is greedy, or drawn at a temperature.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from ..failures import ConfigurationError
from ..memory.model_config import DataType, check_data_type, context_length, load_model, model_directory
from ..memory.predicted import Curve, fit, free_bytes, predict, recommend_batch_size
from ..memory.release import release_memory
from .generator import Conversation
from .model_files import PromptEncoder, load_tokenizer, prompt_room


class TorchGenerator:
    """Greedy by default; above temperature 0 the draws are seeded, and the caller's own random state is not touched.

    In float32, a batch gives token for token what its conversations give one by one.
    """

    def __init__(
        self,
        model_path: str | Path,
        device: str = "cuda",
        dtype: DataType = "auto",
        max_new_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        if temperature < 0:
            raise ConfigurationError(f"temperature must be 0 (greedy) or more, not {temperature}")
        check_data_type(dtype)
        directory = model_directory(model_path)
        self.device = _device(device)
        self.tokenizer = load_tokenizer(directory)
        self._encoder = PromptEncoder(self.tokenizer)
        self.model: Any = load_model(directory, dtype).to(self.device).eval()
        self.max_prompt_tokens = prompt_room(context_length(self.model.config), max_new_tokens)
        self.max_new_tokens = max_new_tokens
        self._seeds = torch.Generator().manual_seed(seed) if temperature else None
        self.model.generation_config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            eos_token_id=_stop_tokens(self.model, self.tokenizer),
            pad_token_id=self.tokenizer.pad_token_id,
            **({"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}),
        )
        self._prediction = lru_cache(maxsize=8)(self._predict)

    def generate(self, conversations: list[Conversation]) -> list[str]:
        if not conversations:
            return []
        if self.model is None:
            raise ConfigurationError("this TorchGenerator is closed; make another")
        prompts = self.tokenizer.pad(
            {"input_ids": self._encoder.encode(conversations)}, padding_side="left", return_tensors="pt"
        ).to(self.device)
        with torch.inference_mode(), _drawing(self._seeds, self.device):
            tokens = self.model.generate(**prompts)
        replies = tokens[:, prompts["input_ids"].shape[1] :].cpu()
        del prompts, tokens
        if self.device.type == "cuda":  # the trainer shares this GPU
            torch.cuda.empty_cache()
        texts: list[str] = self.tokenizer.batch_decode(replies, skip_special_tokens=True)
        return texts

    def lengths(self, conversations: list[Conversation]) -> list[int]:
        return self._encoder.lengths(conversations)

    def recommend_batch_size(self, prompt_tokens: int) -> int:
        """The largest batch of such prompts that fits beside the loaded model, by the predicted curve; at least 1."""
        curve, weights = self._prediction(-(-max(prompt_tokens, 1) // 64) * 64)
        return max(1, recommend_batch_size(curve, free_bytes(self.device) + weights))

    def close(self) -> None:
        """Give back the model's memory. Twice is fine."""
        self.model = None
        release_memory()

    def _predict(self, prompt_tokens: int) -> tuple[Curve, int]:
        peaks = predict(self.model.config, (1, 8), prompt_tokens, self.max_new_tokens, self.model.dtype)
        return fit(peaks), peaks[0].weights


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(f"device={name!r} is no torch device; pass 'cuda', 'cuda:1' or 'cpu'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(
            f"device={name!r}, but torch {torch.__version__} sees no CUDA GPU; pass device='cpu', or install a CUDA"
            " build of torch and check the driver with nvidia-smi"
        )
    return device


def _stop_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Where a reply ends: at the model's own end tokens, and at the tokenizer's."""
    own = model.generation_config.eos_token_id
    ends = [*(own if isinstance(own, list) else [own]), tokenizer.eos_token_id]
    return sorted({end for end in ends if end is not None})


@contextmanager
def _drawing(seeds: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Draw from the generator's own seed, and leave the random state of whoever trains in this process as it was."""
    if seeds is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(torch.randint(2**62, (), generator=seeds)))
        yield

"""A transformers model as a generator: left padding, the model's own chat template, one `generate` per batch.

Importing this module imports torch and transformers, so it is imported only when it is used. Settings in the
model's generation_config.json (top_p, repetition penalties) do not apply: a judge is greedy, or drawn at a temperature.
Whoever trains in this process finds the model, the random states and the current device as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor

from ..failures import ConfigurationError
from ..memory.model_config import DataType, check_data_type, context_length, load_model, model_directory
from ..memory.predicted import Curve, fit, free_bytes, predict, recommend_batch_size
from ..memory.release import release_memory
from .generator import Conversation
from .model_files import PromptEncoder, check_tokenizer, load_tokenizer, prompt_room


class TorchGenerator:
    """A model of its own, from a directory; or, with `model` and `tokenizer`, the one that somebody trains.

    Of a live model, no second copy is made: it judges with the weights it has at that moment, where it is, and is
    given back as it was. It can do one thing at a time: train on when the verdicts are there.
    Greedy by default; above temperature 0 the draws are seeded. In float32, a batch gives token for token what its
    conversations give one by one.
    """

    def __init__(
        self,
        model_path: str | Path | None = None,
        device: str | None = None,
        dtype: DataType = "auto",
        max_new_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        *,
        model: Any = None,
        tokenizer: Any = None,
    ) -> None:
        if temperature < 0:
            raise ConfigurationError(f"temperature must be 0 (greedy) or more, not {temperature}")
        check_data_type(dtype)
        if model is not None:
            _check_live(model, tokenizer, {"model_path": model_path, "device": device, "dtype": dtype})
            self.model, self.tokenizer = model, tokenizer
        elif model_path is None:
            raise ConfigurationError("TorchGenerator takes a model's directory, or model= and tokenizer=")
        else:
            directory = model_directory(model_path)
            place = _device(device or "cuda")
            self.tokenizer = load_tokenizer(directory)
            self.model = load_model(directory, dtype).to(place).eval()
        self._encoder = PromptEncoder(self.tokenizer)
        self.max_prompt_tokens = prompt_room(context_length(self.model.config), max_new_tokens)
        self.max_new_tokens = max_new_tokens
        self._temperature = temperature
        self._seeds = torch.Generator().manual_seed(seed)
        self._settings = GenerationConfig(
            max_new_tokens=max_new_tokens,
            use_cache=True,  # a trainer's config may say otherwise
            eos_token_id=_stop_tokens(self.model, self.tokenizer),
            pad_token_id=self.tokenizer.pad_token_id,
        )
        # What is made in inference mode may never take part in training: of a live model, layers keep some of it.
        self._without_gradients = torch.inference_mode if model is None else torch.no_grad
        self._prediction = lru_cache(maxsize=8)(self._predict)

    @property
    def device(self) -> torch.device:
        """Where the weights are now, with the index. The current device is each thread's own, so it does not tell."""
        if self.model is None:
            raise ConfigurationError("this TorchGenerator is closed; make another")
        return next(self.model.parameters()).device

    def generate(self, conversations: list[Conversation]) -> list[str]:
        if not conversations:
            return []
        device = self.device
        prompts = self.tokenizer.pad(
            {"input_ids": self._encoder.encode(conversations)}, padding_side="left", return_tensors="pt"
        ).to(device)
        with self._without_gradients(), _current(device), _as_judge(self.model, self._settings):
            tokens = self.model.generate(**prompts, logits_processor=self._drawing(device))
        replies = tokens[:, prompts["input_ids"].shape[1] :].cpu()
        texts: list[str] = self.tokenizer.batch_decode(replies, skip_special_tokens=True)
        return texts

    def lengths(self, conversations: list[Conversation]) -> list[int]:
        return self._encoder.lengths(conversations)

    def recommend_batch_size(self, prompt_tokens: int) -> int:
        """The largest batch of such prompts that fits beside the loaded model, by the predicted curve; at least 1."""
        curve, weights = self._prediction(-(-max(prompt_tokens, 1) // 64) * 64)
        return max(1, recommend_batch_size(curve, free_bytes(self.device) + weights))

    def close(self) -> None:
        """Give back the model's memory; a live model stays whoever's it is. Twice is fine."""
        self.model = None
        release_memory()

    def _predict(self, prompt_tokens: int) -> tuple[Curve, int]:
        peaks = predict(self.model.config, (1, 8), prompt_tokens, self.max_new_tokens, self.model.dtype)
        return fit(peaks), peaks[0].weights

    def _drawing(self, device: torch.device) -> list[LogitsProcessor]:
        if not self._temperature:
            return []
        seed = int(torch.randint(2**62, (), generator=self._seeds))
        return [_Drawn(self._temperature, torch.Generator(device).manual_seed(seed))]


class _Drawn(LogitsProcessor):  # type: ignore[misc]  # untyped where transformers is absent
    """Leaves only the token that is drawn, as transformers draws it, but from a random state of our own."""

    def __init__(self, temperature: float, random: torch.Generator) -> None:
        self._temperature, self._random = temperature, random

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        drawn = torch.multinomial((scores / self._temperature).softmax(-1), 1, generator=self._random)
        return torch.full_like(scores, -torch.inf).scatter_(1, drawn, 0.0)


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels that ask for the current device get this one, in this thread alone."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def _as_judge(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """The model in eval mode, where no layer checkpoints or drops out, and under a judge's settings; then as it was.

    `generate` fills what `settings` leave open from the model's own generation_config, so that is replaced meanwhile.
    """
    modules = list(model.modules())
    training = [module for module in modules if module.training]
    configured = [(module, module.generation_config) for module in modules if "generation_config" in vars(module)]
    try:
        model.eval()
        for module, _ in configured:
            module.generation_config = settings
        yield
    finally:
        for module in training:
            module.training = True
        for module, own in configured:
            module.generation_config = own


def _check_live(model: Any, tokenizer: Any, given: dict[str, Any]) -> None:
    if not callable(getattr(model, "generate", None)):
        raise ConfigurationError(
            f"model= takes a transformers model, and {type(model).__name__} has no generate; unwrap it first, as in"
            " trainer.accelerator.unwrap_model(trainer.model)"
        )
    if tokenizer is None:
        raise ConfigurationError("model= needs its tokenizer=, as in trainer.processing_class")
    check_tokenizer(tokenizer, "the tokenizer given to TorchGenerator")
    if pointless := [name for name, value in given.items() if value not in (None, "auto")]:
        raise ConfigurationError(f"a live model stays as and where it is; leave out {', '.join(pointless)}")


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

"""A vLLM engine in this process's care as a generator: every `generate` is one call, which vLLM batches by itself.

Open the judge with `batch_size=None`, so that continuous batching sees all prompts at once. vLLM sets its memory
aside in advance (`gpu_memory_utilization`; on a CPU, VLLM_CPU_KVCACHE_SPACE in GiB), whatever the batch.

vLLM starts only where one sequence of `max_model_len` tokens fits that memory, and a judge rarely needs a model's whole
context: by default vLLM takes as much of it as fits, and a prompt that is longer fails by itself.
"""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams, TokensPrompt

from ..failures import ConfigurationError
from ..memory.model_config import context_length, load_config, model_directory
from ..memory.release import release_memory
from .generator import Conversation
from .model_files import PromptEncoder, load_tokenizer, prompt_room


class VllmGenerator:
    """Greedy by default; above temperature 0 every conversation draws from a seed of its own, since the engine's one
    seed depends on how vLLM happens to schedule. `engine_options` go to `vllm.LLM` (gpu_memory_utilization,
    tensor_parallel_size, …).
    """

    def __init__(
        self,
        model_path: str | Path,
        dtype: str = "auto",
        max_new_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        max_model_len: int | None = None,
        **engine_options: Any,
    ) -> None:
        directory = model_directory(model_path)
        trusted = engine_options.get("trust_remote_code", False)
        prompt_room(max_model_len or context_length(load_config(directory, trusted)), max_new_tokens)
        self._encoder = PromptEncoder(load_tokenizer(directory, trusted))
        self._sampling = {"temperature": temperature, "max_tokens": max_new_tokens}
        self._seeds = random.Random(seed)
        self._engine: Any = LLM(model=str(directory), dtype=dtype, max_model_len=max_model_len or -1, **engine_options)
        context = self._engine.llm_engine.vllm_config.model_config.max_model_len
        if context <= max_new_tokens:
            self.close()
            raise ConfigurationError(
                f"vLLM's memory has room for {context} tokens at once, and max_new_tokens={max_new_tokens} leaves none"
                " for a prompt; pass a smaller number, or give vLLM more memory (gpu_memory_utilization)"
            )
        self.max_prompt_tokens = prompt_room(context, max_new_tokens)

    def generate(self, conversations: list[Conversation]) -> list[str]:
        if not conversations:
            return []
        if self._engine is None:
            raise ConfigurationError("this VllmGenerator is closed; make another")
        prompts = [TokensPrompt(prompt_token_ids=tokens) for tokens in self._encoder.encode(conversations)]
        sampling = [SamplingParams(**self._sampling, seed=self._seeds.getrandbits(63)) for _ in prompts]
        replies = self._engine.generate(prompts, sampling, use_tqdm=False)
        return [reply.outputs[0].text for reply in replies]

    def lengths(self, conversations: list[Conversation]) -> list[int]:
        return self._encoder.lengths(conversations)

    def recommend_batch_size(self, prompt_tokens: int) -> None:
        """All at once: vLLM schedules by its own free KV blocks."""

    def close(self) -> None:
        """Stop the engine's process, and with it give back its memory. Twice is fine."""
        if self._engine is not None:
            self._engine.llm_engine.engine_core.shutdown(timeout=30.0)  # its default kills before it is done
            multiprocessing.active_children()  # reaps the ones that have ended
            self._engine = None
            release_memory()

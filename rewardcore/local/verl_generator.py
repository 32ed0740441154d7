"""A verl actor as a generator: the policy in training judges, through the workers that already hold its weights.

Takes what verl 0.9.1 rolls out with: a worker group, whose workers read token tensors, or an agent loop manager,
whose workers read `raw_prompt`; both find theirs. Batches are padded to the number of workers and unpadded again.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from verl import DataProto
from verl.protocol import pad_dataproto_to_divisor, unpad_dataproto
from verl.utils.model import compute_position_id_with_mask

from ..failures import ConfigurationError
from .generator import Conversation
from .model_files import PromptEncoder, check_tokenizer


class VerlActorGenerator:
    """Greedy, as far as the workers let the batch decide; with `do_sample`, as the rollout samples. Lengths of replies
    are the rollout's `response_length`.

    Pass `max_prompt_tokens=rollout.prompt_length`: verl cuts longer prompts from the left without failing, and
    what it cuts off is the rubric.
    """

    def __init__(
        self, worker_group: Any, tokenizer: Any, max_prompt_tokens: int | None = None, do_sample: bool = False
    ) -> None:
        check_tokenizer(tokenizer, "the tokenizer given to VerlActorGenerator")
        self.max_prompt_tokens = max_prompt_tokens
        self._do_sample = do_sample
        self._worker_group = worker_group
        self._tokenizer = tokenizer
        self._encoder = PromptEncoder(tokenizer)
        self._workers = _number_of_workers(worker_group)

    def generate(self, conversations: list[Conversation]) -> list[str]:
        if not conversations:
            return []
        batch, padding = pad_dataproto_to_divisor(self._batch(conversations), self._workers)
        output = unpad_dataproto(self._worker_group.generate_sequences(batch), padding)
        responses = output.batch["responses"]
        written = output.batch["attention_mask"][:, -responses.shape[1] :].bool()
        return [
            self._tokenizer.decode(tokens[mask], skip_special_tokens=True)
            for tokens, mask in zip(responses.cpu(), written.cpu(), strict=True)
        ]

    def lengths(self, conversations: list[Conversation]) -> list[int]:
        return self._encoder.lengths(conversations)

    def _batch(self, conversations: list[Conversation]) -> DataProto:
        prompts = self._tokenizer.pad(
            {"input_ids": self._encoder.encode(conversations)}, padding_side="left", return_tensors="pt"
        )
        mask: torch.Tensor = prompts["attention_mask"]
        raw_prompts = numpy.empty(len(conversations), dtype=object)
        raw_prompts[:] = self._encoder.harmless(conversations)
        return DataProto.from_dict(
            tensors={
                "input_ids": prompts["input_ids"],
                "attention_mask": mask,
                "position_ids": compute_position_id_with_mask(mask),
            },
            non_tensors={
                "raw_prompt": raw_prompts,
                "__do_sample__": numpy.full(len(conversations), self._do_sample),  # how an agent loop is told
            },
            meta_info={
                "do_sample": self._do_sample,
                "eos_token_id": self._tokenizer.eos_token_id,
                "pad_token_id": self._tokenizer.pad_token_id,
            },
        )


def _number_of_workers(worker_group: Any) -> int:
    if isinstance(size := getattr(worker_group, "world_size", None), int):
        return size
    if workers := getattr(worker_group, "agent_loop_workers", None):
        return len(workers)
    raise ConfigurationError(
        f"worker_group must have world_size, or agent_loop_workers, to say how many workers share a batch;"
        f" {type(worker_group).__name__} has neither"
    )

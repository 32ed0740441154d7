"""A batch as verl's DataProto holds it, from texts: words are tokens, prompts are padded on the left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

PAD = 0


class WordTokenizer:
    """A word is a token."""

    def __init__(self) -> None:
        self._words = ["<pad>"]

    def encode(self, text: str) -> list[int]:
        self._words += [word for word in text.split() if word not in self._words]
        return [self._words.index(word) for word in text.split()]

    def decode(self, tokens: Any, skip_special_tokens: bool = False) -> str:
        assert skip_special_tokens
        return " ".join(self._words[int(token)] for token in tokens)


@dataclass
class Batch:
    """What the managers read of a DataProto."""

    batch: dict[str, torch.Tensor]
    non_tensor_batch: dict[str, list[Any]]
    meta_info: dict[str, Any] = field(default_factory=dict)


def batch_of(tokenizer: WordTokenizer, prompts: list[str], responses: list[str], **columns: list[Any]) -> Batch:
    left = [tokenizer.encode(prompt) for prompt in prompts]
    right = [tokenizer.encode(response) for response in responses]
    width, length = max(map(len, left)) + 2, max([*map(len, right), 1]) + 3
    left_mask = [[0] * (width - len(row)) + [1] * len(row) for row in left]
    right_mask = [[1] * len(row) + [0] * (length - len(row)) for row in right]
    return Batch(
        {
            "prompts": torch.tensor([[PAD] * (width - len(row)) + row for row in left]),
            "responses": torch.tensor([row + [PAD] * (length - len(row)) for row in right]),
            "attention_mask": torch.tensor([one + two for one, two in zip(left_mask, right_mask, strict=True)]),
        },
        {"data_source": ["maths"] * len(prompts), **columns},
    )

"""verl's batch as rows of texts, and rewards as its tensor. The only file here that touches tensors.

A batch is whatever has `batch` (tensors by name), `non_tensor_batch` (columns by name) and `meta_info`, as verl's
DataProto has: verl itself is not imported. An empty response has no last token, and gets no reward anywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..failures import ConfigurationError, needs_extra
from ..sample import Conversation
from ..words import printable


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One response of a batch; `length` is in tokens. The prompt is the conversation where the trainer kept it."""

    prompt: str | Conversation
    response: str
    length: int
    columns: Mapping[str, Any]
    data_source: str

    @property
    def ground_truth(self) -> Any:
        return self._mapping("reward_model").get("ground_truth")

    @property
    def extra(self) -> Mapping[str, Any]:
        return self._mapping("extra_info")

    def _mapping(self, name: str) -> Mapping[str, Any]:
        found = self.columns.get(name)
        if not isinstance(found, Mapping | None):
            raise ConfigurationError(f"the column {name} must hold mappings or None, not {type(found).__name__}")
        return found or {}


def rows_of(data: Any, tokenizer: Any, data_source_key: str = "data_source") -> list[BatchRow]:
    """In batch order; special tokens are left out of the texts."""
    prompts, responses = data.batch["prompts"], data.batch["responses"]
    prompt_masks, response_masks = _masks(data)
    columns, rows = data.non_tensor_batch, []
    for place in range(len(responses)):
        own = {name: column[place] for name, column in columns.items()}
        prompt = own.get("raw_prompt")
        if prompt is None:
            prompt = tokenizer.decode(prompts[place][prompt_masks[place]], skip_special_tokens=True)
        response = responses[place][response_masks[place]]
        text = tokenizer.decode(response, skip_special_tokens=True)
        rows.append(BatchRow(prompt, text, len(response), own, str(own.get(data_source_key) or "")))
    return rows


def reward_tensor(data: Any, rewards: Sequence[float]) -> Any:
    """Zeros in the shape of `responses`, with each reward at its response's last token."""
    with needs_extra("torch", "a reward tensor"):
        import torch
    tensor = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
    for place, (written, reward) in enumerate(zip(_masks(data)[1], rewards, strict=True)):
        if written.any():
            tensor[place, written.nonzero()[-1]] = reward
    return tensor


def column_of(rows: Sequence[BatchRow], name: str, why: str) -> list[Any]:
    """A column that must be there."""
    if any(name not in row.columns for row in rows):
        raise ConfigurationError(f"the batch has no {name!r} in non_tensor_batch: {why}")
    return [row.columns[name] for row in rows]


def scores_in(data: Any) -> tuple[Any, dict[str, Any]] | None:
    """What a reward model has already scored, with its extra info; None where there is nothing."""
    if "rm_scores" not in data.batch.keys():  # noqa: SIM118, a TensorDict has no `in`
        return None
    names = (getattr(data, "meta_info", None) or {}).get("reward_extra_keys", [])
    return data.batch["rm_scores"], {name: data.non_tensor_batch[name] for name in names}


def show(rows: Sequence[BatchRow], columns: Mapping[str, Sequence[float]], count: int) -> None:
    """Print the first of each data source, as verl's managers do with `num_examine`."""
    shown: Counter[str] = Counter()
    for place, row in enumerate(rows):
        shown[row.data_source] += 1
        if shown[row.data_source] <= count:
            print("[prompt]", printable(row.prompt))
            print("[response]", printable(row.response))
            print("[ground_truth]", printable(row.ground_truth))
            for name, values in columns.items():
                print(f"[{name}]", values[place])


def _masks(data: Any) -> tuple[Any, Any]:
    """Which tokens of the prompts and of the responses are not padding.

    Where verl tells the lengths, it has padded prompts, responses and masks of one trajectory's sequences on the right,
    each by themselves: the mask lies across both then, and says nothing of either.
    """
    if "response_len" in data.non_tensor_batch:
        return _first(data, "prompts", "prompt_len"), _first(data, "responses", "response_len")
    mask = data.batch["attention_mask"].bool()
    prompt_length = mask.shape[-1] - data.batch["responses"].shape[-1]
    return mask[:, :prompt_length], mask[:, prompt_length:]


def _first(data: Any, name: str, lengths: str) -> Any:
    tokens, counts = data.batch[name], [int(count) for count in data.non_tensor_batch[lengths]]
    return tokens.new_tensor(range(tokens.shape[-1])) < tokens.new_tensor(counts).unsqueeze(-1)

"""The tables of docs/memory.md: `python -m bench.memory_table` predicts four real models, from their configs alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import LlamaConfig, Qwen2Config

from rewardcore.memory.predicted import FOLLOWED, RESERVE, Curve, Peak, fit, predict, recommend_batch_size

SHORT, LONG = (2048, 256), (8192, 1024)  # tokens of a prompt and of a reply
MIB, GIB = 2**20, 2**30

_QWEN = {"num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True}
#: As their authors publish them.
MODELS: dict[str, Any] = {
    "Qwen2.5-0.5B": Qwen2Config(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, **_QWEN
    ),
    "Qwen2.5-1.5B": Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, **_QWEN
    ),
    "Qwen2.5-7B": Qwen2Config(
        hidden_size=3584, intermediate_size=18_944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152_064, tie_word_embeddings=False,
    ),
    "Llama-3.1-8B": LlamaConfig(
        hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=128_256, tie_word_embeddings=False,
    ),
}  # fmt: skip
#: Cards in GiB, and the batch size that a rule by card alone gives for each: < 8, 8 to 16, 16 to 32, above.
RULE = {6: 2, 8: 4, 12: 4, 16: 8, 24: 8, 40: 16, 80: 16}


def curve(peaks: list[Peak]) -> Iterator[str]:
    yield "| batch | weights | KV cache | activations | predicted peak |"
    yield "|---|---|---|---|---|"
    for peak in peaks:
        parts = peak.weights, peak.kv_cache, peak.activations, peak.total
        yield f"| {peak.batch_size} | {' | '.join(f'{part / MIB:,.0f}' for part in parts)} |"


def advice(curves: dict[str, Curve]) -> Iterator[str]:
    yield f"| card | the rule | {' | '.join(curves)} |"
    yield "|---" * (len(curves) + 2) + "|"
    for memory, ruled in RULE.items():
        largest = [recommend_batch_size(curve, memory * GIB) for curve in curves.values()]
        yield f"| {memory} GiB | {ruled} | {' | '.join(map(str, largest))} |"


def tables() -> Iterator[str]:
    """In bfloat16: the curve of one model, and the largest batch of each by card, for short and for long prompts."""
    peaks = predict(MODELS["Qwen2.5-7B"], (1, 2, 4, 8, 16), *SHORT, torch.bfloat16)
    yield from (f"Qwen2.5-7B, bfloat16, {SHORT[0]} + {SHORT[1]} tokens, in MiB ({FOLLOWED}):", "", *curve(peaks))
    for lengths in (SHORT, LONG):
        curves = {name: fit(predict(config, (1, 16), *lengths, torch.bfloat16)) for name, config in MODELS.items()}
        yield from ("", f"The largest batch at {lengths[0]} + {lengths[1]} tokens, with {RESERVE:.0%} kept free:", "")
        yield from advice(curves)


if __name__ == "__main__":
    for line in tables():
        print(line)

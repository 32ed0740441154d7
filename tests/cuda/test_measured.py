"""Memory measured by the real code, beside what was predicted of it."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from rewardcore.memory.measured import measure
from rewardcore.memory.predicted import predict
from tests.cuda.devices import Cuda


@pytest.mark.parametrize(("batch_size", "prompt_tokens", "new_tokens"), [(1, 256, 4), (4, 256, 4), (8, 16, 60)])
def test_what_a_gpu_gives_out_is_what_was_predicted(
    cuda: Cuda, batch_size: int, prompt_tokens: int, new_tokens: int
) -> None:
    """At the prefill, and at the last token where that is more. A tensor's block is rounded up, and nothing else."""
    config = Qwen2Config(
        hidden_size=448, intermediate_size=1256, num_hidden_layers=2, num_attention_heads=14, num_key_value_heads=2,
        vocab_size=3000, eos_token_id=None,
    )  # fmt: skip
    (predicted,) = predict(config, [batch_size], prompt_tokens, new_tokens, torch.float32)
    model = AutoModelForCausalLM.from_config(config).to("cuda").eval()
    (measured,) = measure(model, [batch_size], prompt_tokens, new_tokens)
    assert measured.allocated / predicted.total == pytest.approx(1, abs=0.001)
    assert measured.reserved >= measured.allocated
    assert cuda.synchronisations >= 2, "a time is that of finished work"

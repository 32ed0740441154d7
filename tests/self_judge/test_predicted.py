"""The prediction runs the installed transformers' own code, so what it says of decoding is what that would take."""

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, MistralConfig, Qwen2Config

from rewardcore.memory.predicted import FOLLOWED, predict
from tests.self_judge.test_memory import real_cpu_peak


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 7])
def test_decoding_is_predicted_as_the_installed_transformers_does_it(groups: int, padded: bool) -> None:
    """Where heads are grouped, this one packs the queries; older ones repeated the keys and values, which is more."""
    config = Qwen2Config(
        hidden_size=448, intermediate_size=256, num_hidden_layers=2, num_attention_heads=14,
        num_key_value_heads=14 // groups, vocab_size=300, eos_token_id=None,
    )  # fmt: skip
    (peak,) = predict(config, [8], 8, 160, torch.float32, padded)
    assert peak.moment == "last token"
    real = real_cpu_peak(AutoModelForCausalLM.from_config(config).eval(), 8, 8, 160, padded)
    assert peak.total / real == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("window", [64, 4096])
def test_layers_with_a_sliding_window_keep_no_more_than_that(window: int) -> None:
    config = MistralConfig(
        hidden_size=448, intermediate_size=256, num_hidden_layers=2, num_attention_heads=14, num_key_value_heads=7,
        vocab_size=300, eos_token_id=None, sliding_window=window,
    )  # fmt: skip
    (peak,) = predict(config, [8], 8, 160, torch.float32)
    real = real_cpu_peak(AutoModelForCausalLM.from_config(config).eval(), 8, 8, 160, True)
    assert peak.kv_cache == 2 * 2 * 8 * min(8 + 160, window) * 224 * 4
    assert peak.total / real == pytest.approx(1, abs=0.02)


def test_a_prediction_says_whose_code_it_followed() -> None:
    assert f"transformers {transformers.__version__}, torch {torch.__version__}" == FOLLOWED

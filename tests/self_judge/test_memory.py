import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen2Config

from rewardcore.failures import ConfigurationError
from rewardcore.memory.measured import Measured, measure
from rewardcore.memory.predicted import Curve, Peak, fit, predict, recommend_batch_size
from rewardcore.memory.report import run_memory

MIB, GIB = 2**20, 2**30
SMALL_QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
LARGE_LLAMA = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}


def real_cpu_peak(model: Any, batch_size: int, prompt_tokens: int, new_tokens: int, padded: bool) -> int:
    """The most bytes that torch's CPU allocator had given out at once, as its profiler reports them."""
    mask = torch.ones(batch_size, prompt_tokens, dtype=torch.long)
    mask[:, 0] = 0 if padded else 1
    inputs = {"input_ids": torch.ones_like(mask), "attention_mask": mask}
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model.generate(**inputs, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False)
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak + sum(weight.nbytes for weight in (*model.parameters(), *model.buffers()))


@pytest.mark.parametrize(
    ("batch_size", "prompt_tokens", "new_tokens", "padded"),
    [
        (1, 512, 8, False),
        (4, 256, 8, False),
        (4, 256, 8, True),
        (16, 384, 8, False),
        (16, 384, 8, True),
        (8, 32, 64, False),
        (8, 32, 64, True),
    ],
)
def test_the_prediction_is_within_two_percent_of_real_cpu_allocations(
    tiny_judge: Path, batch_size: int, prompt_tokens: int, new_tokens: int, padded: bool
) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_judge).eval()
    (peak,) = predict(model.config, [batch_size], prompt_tokens, new_tokens, torch.float32, padded)
    real = real_cpu_peak(model, batch_size, prompt_tokens, new_tokens, padded)
    assert peak.total / real == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("shape", [SMALL_QWEN, LARGE_LLAMA], ids=["0.5B", "70B"])
def test_weights_and_kv_cache_are_what_arithmetic_says(shape: dict[str, Any]) -> None:
    config = (Qwen2Config if shape is SMALL_QWEN else LlamaConfig)(**shape)
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    key_value = hidden // heads * shape["num_key_value_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * key_value
    attention += hidden + 2 * key_value if shape is SMALL_QWEN else 0  # Qwen2 has biases
    layer = attention + 3 * hidden * shape["intermediate_size"] + 2 * hidden
    tables = shape["vocab_size"] * hidden * (1 if shape is SMALL_QWEN else 2)
    parameters = shape["num_hidden_layers"] * layer + tables + hidden
    (prefill,) = predict(config, [4], 512, 64, torch.bfloat16)
    assert prefill.weights == pytest.approx(2 * parameters, rel=1e-6)
    assert prefill.kv_cache == 2 * 2 * shape["num_hidden_layers"] * 4 * 512 * key_value


def test_the_last_decode_step_counts_where_it_is_the_peak() -> None:
    (decode,) = predict(Qwen2Config(**SMALL_QWEN), [4], 16, 2048, torch.bfloat16)
    assert decode.kv_cache == 2 * 2 * 24 * 4 * (16 + 2048) * 128


def test_a_small_qwen_has_the_known_curve() -> None:
    peaks = predict(Qwen2Config(**SMALL_QWEN), [1, 2, 4, 8, 16], 512, 64, torch.bfloat16, padded=False)
    for peak, expected in zip(peaks, [966, 990, 1038, 1133, 1323], strict=True):
        assert peak.total / MIB == pytest.approx(expected, rel=0.002)
    curve = fit(peaks)
    assert curve.intercept / MIB == pytest.approx(942, abs=1)
    assert curve.slope / MIB == pytest.approx(23.9, abs=0.1)


def test_a_curve_is_the_line_through_its_peaks() -> None:
    peaks = [Peak(size, 100, 3 * size, 4 * size) for size in (1, 2, 8)]
    assert fit(peaks).intercept == pytest.approx(100)
    assert fit(peaks).slope == pytest.approx(7)
    assert fit(peaks[-1:]).slope == pytest.approx(7)


@pytest.mark.parametrize(
    ("free", "reserve", "expected"), [(0, 0.0, 0), (100, 0.0, 0), (107, 0.0, 1), (170, 0.0, 10), (200, 0.1, 11)]
)
def test_the_recommendation_is_the_largest_batch_that_fits(free: int, reserve: float, expected: int) -> None:
    assert recommend_batch_size(Curve(100, 7), free, reserve) == expected


def test_quantized_weights_are_not_guessed_at() -> None:
    config = Qwen2Config(**SMALL_QWEN, quantization_config={"quant_method": "awq", "bits": 4})
    with pytest.raises(ConfigurationError, match="quantized"):
        predict(config, [1], 8, 8, torch.bfloat16)


@pytest.fixture
def model_without_weights(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_QWEN | {"num_hidden_layers": 2, "vocab_size": 1000}))
    return tmp_path


def test_the_report_needs_only_a_config(model_without_weights: Path) -> None:
    lines: list[str] = []
    peaks = run_memory(model_without_weights, 128, 16, "1,4", "1GiB", echo=lines.append)
    assert [peak.batch_size for peak in peaks] == [1, 4]
    assert lines[0].endswith("bfloat16, 128 + 16 tokens, in MiB")
    assert lines[2].split() == ["batch", "weights", "KV", "cache", "activations", "predicted", "peak"]
    assert [line.split()[0] for line in lines[3:5]] == ["1", "4"]
    size = recommend_batch_size(fit(peaks), GIB)
    assert lines[-1] == f"1.0 GiB (10% kept free): batch size {size} at most"


def test_without_a_device_memory_the_report_advises_for_common_cards(model_without_weights: Path) -> None:
    lines: list[str] = []
    run_memory(model_without_weights, 128, 16, "1", echo=lines.append)
    assert [line.split(" (")[0] for line in lines[-6:]] == [f"{size}.0 GiB" for size in (8, 16, 24, 32, 48, 80)]


def test_a_model_that_does_not_fit_is_told_so_with_the_size_of_its_weights(model_without_weights: Path) -> None:
    lines: list[str] = []
    (peak,) = run_memory(model_without_weights, 128, 16, "1", "16MiB", echo=lines.append)
    assert lines[-1].endswith(f"does not fit, the weights alone are {peak.weights / MIB:.1f} MiB")


def test_the_plot_is_a_png(model_without_weights: Path, tmp_path: Path) -> None:
    run_memory(model_without_weights, 128, 16, "1,2", "1GiB", plot_path=tmp_path / "memory.png", echo=lambda line: None)
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *arguments, **keywords: self)
    monkeypatch.setattr(
        "rewardcore.memory.report.measure",
        lambda model, sizes, prompt_tokens, new_tokens: [Measured(sizes[0], 5 * MIB, 6 * MIB, 1234.0)],
    )


@pytest.mark.usefixtures("pretended_gpu")
def test_measured_peaks_stand_beside_the_predicted_ones(tiny_judge: Path) -> None:
    lines: list[str] = []
    run_memory(tiny_judge, 64, 8, "1,2", "1GiB", echo=lines.append)
    assert lines[2].split()[-4:] == ["measured", "peak", "reserved", "tokens/s"]
    assert lines[3].split()[-3:] == ["5", "6", "1,234"]
    assert "does not fit" in lines[4]


def test_measuring_ends_before_the_first_batch_that_does_not_fit(
    tiny_judge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, answer in [("reset_peak_memory_stats", None), ("synchronize", None), ("max_memory_allocated", 5)]:
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 6)
    model = AutoModelForCausalLM.from_pretrained(tiny_judge).eval()
    generate, shapes = model.generate, []

    def small_memory(input_ids: torch.Tensor, **settings: Any) -> torch.Tensor:
        if len(input_ids) > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        tokens = generate(input_ids=input_ids, **settings)
        shapes.append(tuple(tokens.shape))
        return tokens

    monkeypatch.setattr(model, "generate", small_memory)
    measured = measure(model, [1, 2, 4, 8], 16, 4)
    assert [(seen.batch_size, seen.allocated, seen.reserved) for seen in measured] == [(1, 5, 6), (2, 5, 6)]
    assert shapes == [(1, 20), (2, 20)], "replies have their full length"
    assert all(seen.tokens_per_second > 0 for seen in measured)


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ({"batch_sizes": "1,two"}, "--batch-sizes"),
        ({"batch_sizes": "0,1"}, "--batch-sizes"),
        ({"batch_sizes": ""}, "--batch-sizes"),
        ({"device_memory": "lots"}, "--device-memory"),
        ({"device_memory": "24 parsecs"}, "--device-memory"),
        ({"device_memory": "0GiB"}, "--device-memory"),
        ({"prompt_tokens": 0}, "--prompt-tokens"),
        ({"new_tokens": 0}, "--new-tokens"),
        ({"prompt_tokens": 40000}, "--prompt-tokens"),
        ({"dtype": "int4"}, "--dtype"),
        ({"model_dir": "nowhere"}, "nothing is downloaded"),
    ],
)
def test_a_wrong_flag_is_named(model_without_weights: Path, arguments: dict[str, Any], flag: str) -> None:
    with pytest.raises(ValueError, match=flag):
        run_memory(**{"model_dir": model_without_weights, **arguments})


def test_a_config_that_transformers_cannot_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no such model"}')
    with pytest.raises(ConfigurationError, match=r"cannot read .*config\.json"):
        run_memory(tmp_path)


def test_a_prediction_leaves_the_config_as_it_was(tiny_judge: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_judge)
    before = config.to_dict()
    predict(config, [1], 8, 8, torch.float32)
    assert config.to_dict() == before

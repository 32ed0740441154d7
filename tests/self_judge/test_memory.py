import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, Qwen2Config

from rewardcore.failures import ConfigurationError
from rewardcore.memory.arguments import parse_arguments
from rewardcore.memory.model_config import load_model
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
    assert Curve.through([(1, 107.0), (8, 156.0)]) == Curve(pytest.approx(100), pytest.approx(7))


@pytest.mark.parametrize(
    ("free", "reserve", "expected"), [(0, 0.0, 0), (100, 0.0, 0), (107, 0.0, 1), (170, 0.0, 10), (200, 0.1, 11)]
)
def test_the_recommendation_is_the_largest_batch_that_fits(free: int, reserve: float, expected: int) -> None:
    assert recommend_batch_size(Curve(100, 7), free, reserve) == expected


def test_quantized_weights_are_not_guessed_at() -> None:
    config = Qwen2Config(**SMALL_QWEN, quantization_config={"quant_method": "awq", "bits": 4})
    with pytest.raises(ConfigurationError, match=r"quantized \(quantization_config: awq\)"):
        predict(config, [1], 8, 8, torch.bfloat16)


def report(directory: Path, batch_sizes: str = "1", device_memory: str | None = None, **flags: Any) -> Any:
    """The lines for 128 + 16 tokens, and the peaks."""
    lines: list[str] = []
    arguments = parse_arguments(
        directory,
        **{"prompt_tokens": 128, "new_tokens": 16} | flags,
        batch_sizes=batch_sizes,
        device_memory=device_memory,
    )
    return lines, run_memory(arguments, echo=lines.append)


@pytest.fixture
def model_without_weights(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SMALL_QWEN | {"num_hidden_layers": 2, "vocab_size": 1000}))
    return tmp_path


def test_the_report_needs_only_a_config(model_without_weights: Path) -> None:
    lines, peaks = report(model_without_weights, "1,4", "1GiB")
    assert [peak.batch_size for peak in peaks] == [1, 4]
    assert lines[0].endswith("bfloat16, 128 + 16 tokens, in MiB")
    assert lines[2].split("  ") == ["batch", "weights", "KV at peak", "activations", "predicted peak", "peak at"]
    assert [line.split()[0] for line in lines[3:5]] == ["1", "4"]
    size = recommend_batch_size(fit(peaks), GIB)
    assert lines[-1] == f"1.0 GiB (10% kept free): batch size {size} at most"


def test_without_a_device_memory_the_report_advises_for_common_cards(model_without_weights: Path) -> None:
    lines, _ = report(model_without_weights)
    assert [line.split(" (")[0] for line in lines[-6:]] == [f"{size}.0 GiB" for size in (8, 16, 24, 32, 48, 80)]


def test_what_does_not_fit_says_what_the_weights_and_one_sample_take_and_what_is_missing(
    model_without_weights: Path,
) -> None:
    lines, (peak,) = report(model_without_weights, "1", "16MiB")
    assert lines[-1].endswith(
        f"does not fit: the weights take {peak.weights / MIB:.1f} MiB, one sample"
        f" {(peak.total - peak.weights) / MIB:.1f} MiB more; {peak.total / MIB - 0.9 * 16:.1f} MiB are missing"
    )


@pytest.mark.parametrize(("new_tokens", "moment", "held"), [(16, "prefill", 128), (8000, "last token", 8128)])
def test_the_moment_of_the_kv_column_is_named(
    model_without_weights: Path, new_tokens: int, moment: str, held: int
) -> None:
    lines, (peak,) = report(model_without_weights, new_tokens=new_tokens)
    assert peak.kv_cache == 2 * 2 * 2 * held * 128
    assert lines[3].endswith(moment)
    assert lines[4] == (
        "a row is its fullest moment: at the prefill the KV cache holds the prompts, at the last token also the replies"
    )


def test_a_png_is_drawn_only_where_a_plot_is_asked_for(
    model_without_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report(model_without_weights, "1,2", "1GiB")
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    report(model_without_weights, "1,2", "1GiB", plot=Path("memory.png"))
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_the_plot_names_the_moment_of_the_kv_cache_too(
    model_without_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legends: list[list[str]] = []
    monkeypatch.setattr(
        "matplotlib.backends.backend_agg.FigureCanvasAgg.print_figure",
        lambda canvas, *_, **__: legends.append(
            [text.get_text() for text in canvas.figure.axes[0].get_legend().get_texts()]
        ),
    )
    report(model_without_weights, plot=model_without_weights / "memory.png")
    assert legends == [["weights", "KV cache at the peak", "activations"]]


def parameters(shape: dict[str, Any], gpus: int) -> int:
    """One GPU's, by arithmetic: matrices in N parts, keys and values by whole heads, norms whole."""
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    heads = -(-shape["num_key_value_heads"] // gpus)
    key_value = 2 * hidden * (hidden // shape["num_attention_heads"]) * heads
    matrices = 2 * hidden * hidden + 3 * hidden * shape["intermediate_size"]
    return (layers * matrices + 2 * shape["vocab_size"] * hidden) // gpus + layers * (key_value + 2 * hidden) + hidden


@pytest.mark.parametrize(("gpus", "kv_parts"), [(1, 1), (2, 2), (8, 8), (16, 8), (64, 8)])
def test_each_of_n_gpus_has_its_part_of_weights_and_kv_heads_and_activations_whole(gpus: int, kv_parts: int) -> None:
    config = LlamaConfig(**LARGE_LLAMA | {"num_hidden_layers": 2})
    (whole,) = predict(config, [4], 512, 64, torch.bfloat16)
    (share,) = predict(config, [4], 512, 64, torch.bfloat16, tensor_parallel=gpus)
    assert share.weights == pytest.approx(2 * parameters(LARGE_LLAMA | {"num_hidden_layers": 2}, gpus), rel=1e-5)
    assert share.kv_cache == whole.kv_cache / kv_parts
    assert share.activations == whole.activations


def test_a_share_is_called_one_and_says_what_is_taken_whole(model_without_weights: Path) -> None:
    lines, _ = report(model_without_weights, tensor_parallel=2)
    assert lines[0].endswith("tokens, per GPU of 2, in MiB")
    assert any("activations are taken whole, so the peak is an upper bound" in line for line in lines)


def test_heads_that_the_config_leaves_to_transformers_are_divided_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "num_hidden_layers": 1}))
    with pytest.raises(ConfigurationError, match="--tensor-parallel 3 does not divide the model's 32 attention heads"):
        report(tmp_path, tensor_parallel=3)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, r"T5For\w+ .* no decoder-only"),
        ({"model_type": "whisper"}, "'whisper'.* no decoder-only"),  # AutoModelForCausalLM would build half of it
        ({"model_type": "vit", "architectures": ["ViTModel"]}, "ViTModel .* no decoder-only"),
        ({"model_type": "no-such", "architectures": ["Odd"]}, r"cannot read .*config\.json of Odd .*not recognize"),
        ({}, r"cannot read .*config\.json of a model .*Unrecognized model"),
        (SMALL_QWEN | {"hidden_size": "wide"}, "cannot read .*'qwen2'.*hidden_size"),
        (SMALL_QWEN | {"hidden_size": 895}, "'qwen2'.* cannot be run on fake tensors.*RuntimeError"),
        ({"model_type": "mamba", "num_hidden_layers": 1}, "'mamba'.* cannot be run on fake tensors.*AttributeError"),
        ({"model_type": "bert", "num_hidden_layers": 1}, "'bert'.* cannot be run on fake tensors.*AttributeError"),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_a_model_that_cannot_be_predicted_gets_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], config: dict[str, Any], says: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigurationError, match=says) as caught:
        report(tmp_path)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600
    assert "Traceback" not in capfd.readouterr().err


@pytest.fixture
def custom_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Llama under another name, which only its own code knows."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    custom = {"AutoConfig": "odd.OddConfig", "AutoModelForCausalLM": "odd.OddForCausalLM"}
    config = LARGE_LLAMA | {"num_hidden_layers": 1, "model_type": "odd", "architectures": ["Odd"], "auto_map": custom}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "odd.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OddConfig(LlamaConfig):\n    model_type = 'odd'\n"
        "class OddForCausalLM(LlamaForCausalLM):\n    config_class = OddConfig\n"
    )
    return tmp_path


def test_a_models_own_code_runs_only_where_it_is_trusted_and_nobody_is_asked(
    custom_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: pytest.fail(f"asked: {prompt}"))
    with pytest.raises(ConfigurationError, match=r"Odd .* \(odd.OddConfig, odd.OddForCausalLM\).*--trust-remote-code"):
        report(custom_model)
    with pytest.raises(ConfigurationError, match=r"wants to run code of its own"):
        load_model(custom_model, "auto")
    _, (peak,) = report(custom_model, trust_remote_code=True)
    assert peak.weights == pytest.approx(2 * parameters(LARGE_LLAMA | {"num_hidden_layers": 1}, 1), rel=1e-5)


def test_a_models_own_code_that_fails_is_one_sentence(custom_model: Path) -> None:
    (custom_model / "odd.py").write_text("import no_such_package\n")
    with pytest.raises(ConfigurationError, match=r"cannot read .* of Odd .*no_such_package"):
        report(custom_model, trust_remote_code=True)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--device-memory", "24"], "--device-memory 24 has no unit; write 24GiB"),
        (["--batch-sizes", "1,two"], "--batch-sizes must be whole numbers above 0, as in 1,2,4,8, not '1,two'"),
        (["--plot", "missing/memory.png"], "--plot missing/memory.png: missing is not a directory"),
        (["--tensor-parallel", "3"], "--tensor-parallel 3 does not divide"),
        (["--prompt-tokens", "many"], "Invalid value for '--prompt-tokens'"),
    ],
)
def test_a_wrong_argument_is_one_sentence_and_torch_is_not_loaded(
    model_without_weights: Path, flags: list[str], says: str
) -> None:
    code = (
        "import atexit, sys; from rewardcore.cli import main;"
        " atexit.register(lambda: print({'torch', 'transformers'} & set(sys.modules))); main()"
    )
    command = [sys.executable, "-c", code, "memory", str(model_without_weights), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "set()\n")
    assert done.stderr.startswith(f"rewardcore: {says}")
    assert len(done.stderr.splitlines()) == 1


def test_a_prediction_leaves_the_config_as_it_was(tiny_judge: Path) -> None:
    config = AutoConfig.from_pretrained(tiny_judge)
    before = config.to_dict()
    predict(config, [1], 8, 8, torch.float32)
    assert config.to_dict() == before

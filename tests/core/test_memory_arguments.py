"""The arguments of `rewardcore memory`: understood, or refused in a sentence that names the flag. No torch here."""

import json
from pathlib import Path

import pytest

from rewardcore import ConfigurationError
from rewardcore.memory.arguments import parse_arguments

CONFIG = {"model_type": "qwen2", "max_position_embeddings": 32768, "num_attention_heads": 28, "num_key_value_heads": 4}


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GiB", 24 * 2**30),
        ("24G", 24 * 2**30),
        ("24 gib", 24 * 2**30),
        (" 24g ", 24 * 2**30),
        ("24GB", 24 * 10**9),
        ("24gb", 24 * 10**9),
        ("1.5TiB", 1536 * 2**30),
        ("24564MiB", 24564 * 2**20),
        ("24564M", 24564 * 2**20),
    ],
)
def test_a_size_has_the_unit_it_is_written_with(model, text, size):
    assert parse_arguments(model, device_memory=text).device_memory == size


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"device_memory": "24"}, "--device-memory 24 has no unit; write 24GiB"),
        ({"device_memory": " 23.5 "}, "--device-memory 23.5 has no unit; write 23.5GiB"),
        ({"device_memory": "24B"}, "--device-memory must be a size such as 24GiB (or 24G) or 24GB, not '24B'"),
        ({"device_memory": "lots"}, "--device-memory must be"),
        ({"device_memory": "24 parsecs"}, "--device-memory must be"),
        ({"device_memory": "0GiB"}, "--device-memory must be"),
        ({"device_memory": "-24GiB"}, "--device-memory must be"),
        ({"batch_sizes": "1,two"}, "--batch-sizes must be whole numbers above 0, as in 1,2,4,8, not '1,two'"),
        ({"batch_sizes": "0,1"}, "--batch-sizes must be"),
        ({"batch_sizes": ""}, "--batch-sizes must be"),
        ({"prompt_tokens": 0}, "--prompt-tokens must be 1 or more"),
        ({"new_tokens": 0}, "--new-tokens must be 1 or more"),
        ({"prompt_tokens": 40000}, "--prompt-tokens 40000 and --new-tokens 64 exceed the model's context of 32768"),
        ({"dtype": "int4"}, "--dtype must be one of auto, float32, float16, bfloat16, not 'int4'"),
        ({"tensor_parallel": 0}, "--tensor-parallel must be 1 or more"),
        ({"tensor_parallel": 3}, "28 attention heads and 4 KV heads; take one of 1, 2, 4, 28"),
        ({"tensor_parallel": 7}, "28 attention heads and 4 KV heads; take one of 1, 2, 4, 28"),
        ({"plot": Path("missing/memory.png")}, "--plot missing/memory.png: missing is not a directory"),
        ({"plot": Path("memory.svg")}, "--plot must name a file that ends in .png, not 'memory.svg'"),
        ({"measure": True}, "--measure needs the weights, and"),
        ({"measure": True, "tensor_parallel": 2}, "--measure measures on one GPU; leave out --tensor-parallel"),
        ({"model_dir": "nowhere"}, "(hf download NAME config.json --local-dir DIRECTORY)"),
    ],
)
def test_a_wrong_flag_is_named_with_what_to_write(model, flags, says):
    with pytest.raises(ConfigurationError) as caught:
        parse_arguments(**{"model_dir": model, **flags})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{oops", "is not a readable JSON file"),
        ("[]", "is not a JSON object"),
        *(
            (
                json.dumps({"quantization_config": {"quant_method": method}}),
                f"quantized (quantization_config: {method})",
            )
            for method in ("gptq", "awq", "fp8", "bitsandbytes", "compressed-tensors")
        ),
        ('{"text_config": {"quantization_config": {"load_in_8bit": true}}}', "(quantization_config: unnamed)"),
        ('{"compression_config": {"quant_method": "int8"}}', "quantized (compression_config: int8)"),
        ('{"n_positions": 512}', "exceed the model's context of 512"),
        ('{"text_config": {"max_position_embeddings": 512}}', "exceed the model's context of 512"),
    ],
)
def test_what_the_config_says_is_read_before_anything_is_loaded(tmp_path, text, says):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        parse_arguments(tmp_path)
    assert says in str(caught.value)


def test_a_quantization_that_is_null_is_none(tmp_path):
    (tmp_path / "config.json").write_text('{"quantization_config": null}')
    assert parse_arguments(tmp_path).directory == tmp_path

"""The arguments of `rewardcore memory`, checked before torch is loaded: a typo is answered at once.

What a model's config.json says is read from the JSON alone, so whatever it leaves to transformers' defaults is checked
again (`check_model`) once transformers has filled it in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..failures import ConfigurationError, needs_extra
from .model_config import check_data_type, check_not_quantized, model_directory, read_config

# A card is sold as 24G and has 24 GiB; GB is what it says.
_UNITS = {
    "M": 2**20, "MIB": 2**20, "MB": 10**6, "G": 2**30, "GIB": 2**30, "GB": 10**9, "T": 2**40, "TIB": 2**40, "TB": 10**12
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arguments:
    directory: Path
    prompt_tokens: int
    new_tokens: int
    batch_sizes: list[int]
    device_memory: int | None
    dtype: str
    plot: Path | None
    tensor_parallel: int
    trust_remote_code: bool
    measure: bool = False

    def check_model(self, config: Mapping[str, Any]) -> None:
        """Whether the model can do what is asked of it, as far as its config says."""
        context = config.get("max_position_embeddings") or config.get("n_positions")
        if isinstance(context, int) and self.prompt_tokens + self.new_tokens > context:
            raise ConfigurationError(
                f"--prompt-tokens {self.prompt_tokens} and --new-tokens {self.new_tokens} exceed the model's context of"
                f" {context}"
            )
        heads = config.get("num_attention_heads") or config.get("n_head")
        if not isinstance(heads, int):
            return
        shared = config.get("num_key_value_heads") or heads
        # A GPU holds whole heads; where there are more GPUs than KV heads, some hold the same one.
        fitting = [n for n in range(1, heads + 1) if not heads % n and not (shared % n and n % shared)]
        if self.tensor_parallel not in fitting:
            raise ConfigurationError(
                f"--tensor-parallel {self.tensor_parallel} does not divide the model's {heads} attention heads and"
                f" {shared} KV heads; take one of {', '.join(map(str, fitting))}"
            )


def parse_arguments(
    model_dir: str | Path,
    prompt_tokens: int = 512,
    new_tokens: int = 64,
    batch_sizes: str = "1,2,4,8,16,32",
    device_memory: str | None = None,
    dtype: str = "auto",
    plot: Path | None = None,
    tensor_parallel: int = 1,
    trust_remote_code: bool = False,
    measure: bool = False,
) -> Arguments:
    for flag, value in (
        ("--prompt-tokens", prompt_tokens),
        ("--new-tokens", new_tokens),
        ("--tensor-parallel", tensor_parallel),
    ):
        if value < 1:
            raise ConfigurationError(f"{flag} must be 1 or more, not {value}")
    check_data_type(dtype, "--dtype")
    sizes = _parse_batch_sizes(batch_sizes)
    capacity = None if device_memory is None else _parse_bytes(device_memory)
    if plot is not None:
        _check_plot(plot)
    directory = model_directory(model_dir, "MODEL_DIR", "config.json")
    arguments = Arguments(
        directory, prompt_tokens, new_tokens, sizes, capacity, dtype, plot, tensor_parallel, trust_remote_code, measure
    )
    if measure and tensor_parallel > 1:
        raise ConfigurationError("--measure measures on one GPU; leave out --tensor-parallel, or predict alone")
    if measure and not any(directory.glob("*.safetensors")):
        raise ConfigurationError(f"--measure needs the weights, and {directory} has no .safetensors; fetch all of it")
    config = read_config(directory)
    if isinstance(text := config.get("text_config"), dict):
        config |= text
    check_not_quantized(config)
    arguments.check_model(config)
    return arguments


def _parse_batch_sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(part) for part in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise ConfigurationError(f"--batch-sizes must be whole numbers above 0, as in 1,2,4,8, not {text!r}")
    return sizes


def _parse_bytes(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match and not match[2]:  # GiB to one reader, MiB to whoever reads nvidia-smi: not guessed at
        raise ConfigurationError(f"--device-memory {text.strip()} has no unit; write {match[1]}GiB")
    size = int(float(match[1]) * _UNITS.get(match[2].upper(), 0)) if match else 0
    if not size:
        raise ConfigurationError(f"--device-memory must be a size such as 24GiB (or 24G) or 24GB, not {text!r}")
    return size


def _check_plot(path: Path) -> None:
    if path.suffix != ".png" or path.is_dir():
        raise ConfigurationError(f"--plot must name a file that ends in .png, not {str(path)!r}")
    if not os.access(path.parent, os.W_OK):
        raise ConfigurationError(
            f"--plot {path}: {path.parent} is not a directory that can be written to; make it first"
        )
    with needs_extra("report", "--plot"):
        import matplotlib  # noqa: F401

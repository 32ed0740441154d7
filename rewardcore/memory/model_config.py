"""A model's directory, its config and its weights. Light: transformers is imported only where something is loaded.

Models are read from a directory, never downloaded: a training run should not discover a typo through a hub's 404.
Code that a model brings along runs only where it is trusted, and nobody is asked at a prompt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from ..failures import ConfigurationError

DataType = Literal["auto", "float32", "float16", "bfloat16"]


def model_directory(model_path: str | Path, name: str = "model_path", wanted: str = "") -> Path:
    """The directory, sure to hold a config.json; `wanted` is the file to fetch, where one is enough."""
    directory = Path(os.path.expanduser(model_path))
    if not (directory / "config.json").is_file():
        found = "has no config.json" if directory.is_dir() else "is not a directory"
        raise ConfigurationError(
            f"{name}={str(model_path)!r} {found}; nothing is downloaded here, so fetch the model first"
            f" (hf download NAME {wanted + ' ' if wanted else ''}--local-dir DIRECTORY) and pass that directory"
        )
    return directory


def read_config(directory: Path) -> dict[str, Any]:
    """config.json as it stands."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} is not a readable JSON file ({error}); fetch it again") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{path} is not a JSON object, so not a model's config; fetch it again")
    return config


def load_config(directory: Path, trust_remote_code: bool = False) -> Any:
    from transformers import AutoConfig, __version__

    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # KeyError, ValueError, OSError, validation errors, whatever a model's own code raises
        if "trust_remote_code" in str(error):
            raise custom_code(read_config(directory)) from error
        raise ConfigurationError(
            f"transformers {__version__} cannot read {directory / 'config.json'} of"
            f" {architecture(read_config(directory))}: {first_sentence(error)}"
        ) from error


def load_model(directory: Path, dtype: Any, trust_remote_code: bool = False) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, local_files_only=True, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise custom_code(read_config(directory)) from error
        raise ConfigurationError(f"transformers cannot load the model in {directory}: {error}") from error


def custom_code(config: Mapping[str, Any]) -> ConfigurationError:
    return ConfigurationError(
        f"{architecture(config)} is not in transformers and wants to run code of its own"
        f" ({', '.join(map(str, config['auto_map'].values()))}); if you trust it, add --trust-remote-code to"
        " `rewardcore memory`, or trust_remote_code=True to VllmGenerator; TorchGenerator runs no such code"
    )


def check_not_quantized(config: Mapping[str, Any]) -> None:
    """Their kernels decide how many bytes the weights take, so a number would be wrong."""
    for name in ("quantization_config", "compression_config", "quantization"):
        if found := config.get(name):
            method = found.get("quant_method") if isinstance(found, Mapping) else getattr(found, "quant_method", None)
            raise ConfigurationError(
                f"the model's weights are quantized ({name}: {getattr(method, 'value', method) or 'unnamed'}), and that"
                " is not predicted; the config.json of the model it was made from gives an upper bound, or measure it"
                " on a GPU (torch.cuda.max_memory_allocated)"
            )


def architecture(config: Mapping[str, Any]) -> str:
    return f"{', '.join(config.get('architectures') or ['a model'])} (model_type {config.get('model_type')!r})"


def first_sentence(error: Exception) -> str:
    """What a library says at length, in one line."""
    line = next(iter(str(error).strip().splitlines()), "").strip()
    return f"{type(error).__name__}: {line.split('. ')[0].rstrip('.:')}"


def check_data_type(dtype: str, name: str = "dtype") -> None:
    if dtype not in get_args(DataType):
        raise ConfigurationError(f"{name} must be one of {', '.join(get_args(DataType))}, not {dtype!r}")


def context_length(config: Any) -> int | None:
    return getattr(config.get_text_config(), "max_position_embeddings", None)

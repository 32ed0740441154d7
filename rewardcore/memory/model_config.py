"""A model's directory, its config and its weights. Imports transformers.

Models are read from a directory, never downloaded: a training run should not discover a typo through a hub's 404.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from transformers import AutoConfig, AutoModelForCausalLM

from ..failures import ConfigurationError

DataType = Literal["auto", "float32", "float16", "bfloat16"]


def model_directory(model_path: str | Path, name: str = "model_path") -> Path:
    directory = Path(model_path).expanduser()
    if not (directory / "config.json").is_file():
        found = "has no config.json" if directory.is_dir() else "is not a directory"
        raise ConfigurationError(
            f"{name}={str(model_path)!r} {found}; nothing is downloaded here, so fetch the model first"
            " (hf download NAME --local-dir DIRECTORY) and pass that directory"
        )
    return directory


def load_config(directory: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(f"transformers cannot read {directory / 'config.json'}: {error}") from error


def load_model(directory: Path, dtype: Any) -> Any:
    try:
        return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"transformers cannot load the model in {directory}: {error}") from error


def check_data_type(dtype: str, name: str = "dtype") -> None:
    if dtype not in get_args(DataType):
        raise ConfigurationError(f"{name} must be one of {', '.join(get_args(DataType))}, not {dtype!r}")


def context_length(config: Any) -> int | None:
    return getattr(config.get_text_config(), "max_position_embeddings", None)

"""A model's directory and its config. Imports transformers.

Models are read from a directory, never downloaded: a training run should not discover a typo through a hub's 404.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig

from ..failures import ConfigurationError


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


def context_length(config: Any) -> int | None:
    return getattr(config.get_text_config(), "max_position_embeddings", None)

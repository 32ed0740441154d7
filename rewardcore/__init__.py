"""LLM-as-judge rewards for RL post-training: samples in, verdicts out, and never a failure scored as a number.

Importing this package imports no HTTP client and no model: each comes with the mode that needs it.
"""

from __future__ import annotations

from .interrupts import COMMAND as _COMMAND
from .interrupts import is_command as _is_command

if _is_command():  # before all else is imported: Ctrl-C then is no traceback
    _COMMAND.listen()

import importlib
import typing

from . import rubrics
from .calls import Pending
from .failures import CacheError, ConfigurationError, Failure, RewardcoreError, Unparsed
from .failures import needs_extra as _needs_extra
from .http.cache import MemoryCache, SqliteCache
from .http.endpoint import Endpoint
from .judge import Judge, open_judge
from .sample import Sample
from .stats import Stats
from .verdict import Verdict

__all__ = [
    "CacheError",
    "ConfigurationError",
    "Endpoint",
    "Failure",
    "Judge",
    "MemoryCache",
    "Pending",
    "RewardcoreError",
    "Sample",
    "SqliteCache",
    "Stats",
    "Unparsed",
    "Verdict",
    "__version__",
    "open_judge",
    "rubrics",
]

__version__ = "0.1.0"

#: Brings a client and process handling along, so it is imported when it is named.
_SERVER = "VllmServer"
#: The extra of each generator of the self mode, and its module's name. Heavy, so each is imported when it is named.
_GENERATORS = {"TorchGenerator": "torch", "VllmGenerator": "vllm", "VerlActorGenerator": "verl"}


def __getattr__(name: str) -> typing.Any:
    if name == _SERVER:
        with _needs_extra("serving", name):
            return importlib.import_module(".serving.vllm_server", __name__).VllmServer
    if name not in _GENERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    extra = _GENERATORS[name]
    with _needs_extra(extra, name):
        return getattr(importlib.import_module(f".local.{extra}_generator", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_GENERATORS, _SERVER])

"""Rewards: verdicts, rules and lengths become the numbers that a trainer asks for. Where a failure is a number is told
by each trainer's own adapter (`rewardcore.trainers`), never here.

`rules.py` scores a task, `length.py` a length, both pure; `score.py` is the function that trainers call; `batch.py`
reads and writes verl's tensors for the two managers. `configuration.py` reads every configuration, `judges.py` keeps
one judge for each. Called by trainers; calls judges, local models, rubrics and the words.
"""

from __future__ import annotations

import importlib
import typing

from ..failures import NotJudged
from .length import LengthPenaltyConfig, length_penalty
from .rules import register_rule
from .score import MonitorConfig, acompute_score, compute_score

__all__ = [
    "GeneralIOConfig",
    "GeneralIORewardManager",
    "LengthPenaltyConfig",
    "LengthPenaltyRewardManager",
    "MonitorConfig",
    "NotJudged",
    "acompute_score",
    "compute_score",
    "length_penalty",
    "register_rule",
]

#: The managers write tensors; what they need is imported when one is named.
_MANAGERS = {
    "GeneralIOConfig": "general_io",
    "GeneralIORewardManager": "general_io",
    "LengthPenaltyRewardManager": "length_manager",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _MANAGERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MANAGERS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MANAGERS])

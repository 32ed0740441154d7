"""Rewards: verdicts, rules and lengths become the numbers that a trainer asks for. Where a failure is a number is told
by each trainer's own adapter (`rewardcore.trainers`), never here.

`rules.py` scores a task, `length.py` a length, both pure; `score.py` is the function that trainers call; `batch.py`
reads and writes verl's tensors for the two managers; `samples.py` and `images.py` make a `Sample` of a trainer's row.
`configuration.py` reads every configuration, `judges.py` keeps one judge for each. Called by trainers; calls judges,
local models, rubrics and the words, and imports no torch.
"""

from ..failures import NotJudged
from .general_io import GeneralIOConfig, GeneralIORewardManager
from .length import LengthPenaltyConfig, length_penalty
from .length_manager import LengthPenaltyRewardManager, PendingRewards
from .rules import register_rule
from .score import MonitorConfig, acompute_score, compute_score

__all__ = [
    "GeneralIOConfig",
    "GeneralIORewardManager",
    "LengthPenaltyConfig",
    "LengthPenaltyRewardManager",
    "MonitorConfig",
    "NotJudged",
    "PendingRewards",
    "acompute_score",
    "compute_score",
    "length_penalty",
    "register_rule",
]

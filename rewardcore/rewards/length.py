"""The length penalty: how far a response is from the median length of its group. Pure arithmetic and its configuration.

Nothing within m·(1 ± peak_ratio), then linear up to `max_penalty` at m·(1 ± outer_ratio), and constant beyond: the same
on both sides, without a jump. A group whose median is 0 has nothing to measure by, and no penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..arguments import check, is_number
from ..failures import ConfigurationError
from ..rubrics import Rubric
from .judges import JudgeConfig


@dataclass(frozen=True)
class LengthPenaltyConfig(JudgeConfig):
    """What `LengthPenaltyRewardManager` reads: the penalty, and the judge's part (`enable_openai_reward`)."""

    enable: bool = True
    enable_openai_reward: bool = False
    penalty_scale: float = 1.0
    max_penalty: float = 1.0
    peak_ratio: float = 0.3
    outer_ratio: float = 0.5
    reward_coefficient: float = 1.0
    rubric: Rubric | str = "quality"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("penalty_scale", "max_penalty", "peak_ratio", "outer_ratio"):
            value = getattr(self, name)
            check(name, value, "a finite number of at least 0", is_number(value) and 0.0 <= value < math.inf)
        share = self.reward_coefficient
        check("reward_coefficient", share, "a finite number", is_number(share) and math.isfinite(share))
        if self.outer_ratio <= self.peak_ratio:
            raise ConfigurationError(f"outer_ratio ({self.outer_ratio}) must exceed peak_ratio ({self.peak_ratio})")


def length_penalty(length: float, median: float, config: LengthPenaltyConfig) -> float:
    """What is taken from the reward of a response of this length; never below 0."""
    if not config.enable or median <= 0:
        return 0.0
    deviation = abs(length - median) / median
    share = (deviation - config.peak_ratio) / (config.outer_ratio - config.peak_ratio)
    return config.penalty_scale * config.max_penalty * min(max(share, 0.0), 1.0)

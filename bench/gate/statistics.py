"""What pairs of noisy measurements say: the median of their ratio, and between what it surely lies. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Of the bootstrap interval; and how often the pairs are drawn again for it, from a seed, so that it is repeatable.
CONFIDENCE, RESAMPLES, SEED = 0.98, 2000, 2026
#: A ratio that is surely above 1, and in the median at least this much, is suspect.
SLOWER = 1.05
#: An interval that reaches as far, though not suspect, cannot tell a slow-down from the machine's noise.
BLURRED = 1.25


@dataclass(frozen=True)
class Ratio:
    """Head over base: the median of the pairs, and between what it lies."""

    median: float
    low: float
    high: float

    @property
    def is_suspect(self) -> bool:
        return self.low > 1.0 and self.median >= SLOWER

    @property
    def is_blurred(self) -> bool:
        return not self.is_suspect and self.high >= BLURRED

    @property
    def is_apart(self) -> bool:
        """Whether it is off 1 in either direction: what a control must not be."""
        return self.is_suspect or (self.high < 1.0 and self.median <= 1 / SLOWER)

    def __str__(self) -> str:
        return f"{self.median:.3f} × ({self.low:.3f} to {self.high:.3f})"


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """`pairs` are (base, head); the ratio within a pair is all that counts, since the machine drifts."""
    if not pairs or any(base <= 0 for base, _ in pairs):
        raise ValueError("no ratio without pairs, or over a base of 0")
    ratios = [head / base for base, head in pairs]
    draw = random.Random(SEED)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Ratio(statistics.median(ratios), medians[tail], medians[-1 - tail])

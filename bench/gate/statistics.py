"""What noisy measurements say, in pairs or in rounds apart: the median of their ratio, and its bounds. Pure."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

#: Of the bootstrap interval; and how often the pairs are drawn again for it, from a seed, so that it is repeatable.
CONFIDENCE, RESAMPLES, SEED = 0.98, 2000, 2026
#: A ratio that is surely above 1, and in the median at least this much, is suspect.
SLOWER = 1.05
#: An interval that reaches as far, though not suspect, cannot tell a slow-down from the machine's noise.
BLURRED = 1.25


@dataclass(frozen=True)
class Ratio:
    """Head over base: the median, and between what it lies. `limit` is the least that counts."""

    median: float
    low: float
    high: float
    limit: float = SLOWER

    @property
    def is_suspect(self) -> bool:
        return self.low > 1.0 and self.median >= self.limit

    @property
    def is_blurred(self) -> bool:
        return not self.is_suspect and self.high >= self.limit * BLURRED / SLOWER

    @property
    def is_better(self) -> bool:
        return self.high < 1.0 and self.median <= 1 / self.limit

    @property
    def is_apart(self) -> bool:
        """Whether it is off 1 in either direction: what a control must not be."""
        return self.is_suspect or self.is_better

    def __str__(self) -> str:
        return f"{self.median:.3f} × ({self.low:.3f} to {self.high:.3f})"


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """`pairs` are (base, head); the ratio within a pair is all that counts, since the machine drifts."""
    if not pairs or any(base <= 0 for base, _ in pairs):
        raise ValueError("no ratio without pairs, or over a base of 0")
    ratios = [head / base for base, head in pairs]
    return _bootstrapped(statistics.median(ratios), lambda draw: _median_of_some(draw, ratios))


def ratio_of_rounds(base: Sequence[float], head: Sequence[float], limit: float = SLOWER) -> Ratio:
    """Of rounds that are no pairs, since a night lies between them: the ratio of the medians, each drawn for itself."""
    if not base or not head or min(base) <= 0:
        raise ValueError("no ratio without rounds, or over a base of 0")
    median = statistics.median(head) / statistics.median(base)
    drawn = _bootstrapped(median, lambda draw: _median_of_some(draw, head) / _median_of_some(draw, base))
    return replace(drawn, limit=limit)


def _bootstrapped(median: float, draw_again: Callable[[random.Random], float]) -> Ratio:
    draw = random.Random(SEED)
    drawn = sorted(draw_again(draw) for _ in range(RESAMPLES))
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Ratio(median, drawn[tail], drawn[-1 - tail])


def _median_of_some(draw: random.Random, values: Sequence[float]) -> float:
    return statistics.median(draw.choices(values, k=len(values)))

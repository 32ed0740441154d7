"""The figures of one checkpoint: how large the smallest errors are, and how many samples have none. Arithmetic only.

Eight bytes a sample are kept, so that the median of a million is exact. `Figures` is what is shown of them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import mean, pstdev
from typing import Any

from .results import Counts

#: Each bin begins with its edge and ends before the next.
EDGES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, math.inf)


@dataclass(frozen=True)
class Bin:
    low: float
    high: float | None  # None is without end, which JSON has no number for
    count: int
    share: float  # of the samples with a valid answer

    def __str__(self) -> str:
        return f"[{self.low:g}, {'∞' if self.high is None else f'{self.high:g}'})"


@dataclass(frozen=True)
class Figures:
    """`valid` samples have an error, `unanswered` ones only rollouts without a number, `failed` ones no rollout."""

    total: int
    valid: int
    unanswered: int
    failed: int
    rollouts: Counts
    mean: float | None
    median: float | None
    std: float | None  # of all of them, not an estimate from a sample
    min: float | None
    max: float | None
    bins: tuple[Bin, ...]

    def share(self, count: int) -> float:
        return count / self.total if self.total else 0.0

    def as_document(self) -> dict[str, Any]:
        return asdict(self)


class Errors:
    """The smallest errors of the samples that have one, and the counts of the others, as results are read."""

    def __init__(self) -> None:
        self.values = array("d")
        self.unanswered = self.failed = 0
        self.rollouts = Counts()

    def add(self, document: Mapping[str, Any]) -> None:
        error = document["min_error"]
        counts = Counts(
            document["num_valid_rollouts"], document["num_unparsed_rollouts"], document["num_failed_rollouts"]
        )
        if error is not None:
            self.values.append(error)
        elif counts.unparsed:
            self.unanswered += 1
        else:
            self.failed += 1
        self.rollouts += counts

    def figures(self) -> Figures:
        ordered = sorted(self.values)
        valid = len(ordered)
        total = valid + self.unanswered + self.failed
        return Figures(
            total,
            valid,
            self.unanswered,
            self.failed,
            self.rollouts,
            mean(ordered) if ordered else None,
            median_of(ordered),
            pstdev(ordered) if ordered else None,
            ordered[0] if ordered else None,
            ordered[-1] if ordered else None,
            _bins(ordered),
        )


def median_of(ordered: Sequence[float]) -> float | None:
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return mean(middle) if middle else None  # exact, where a sum of two huge ones would be infinite


def _bins(ordered: Sequence[float]) -> tuple[Bin, ...]:
    below = [bisect_left(ordered, edge) for edge in EDGES]
    bins = []
    for place, (low, high) in enumerate(pairwise(EDGES)):
        count = below[place + 1] - below[place]
        bins.append(Bin(low, None if high == math.inf else high, count, count / len(ordered) if ordered else 0.0))
    return tuple(bins)

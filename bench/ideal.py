"""The best that a scheduler could do: what efficiency is measured against where replies take unequal time. No IO."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def list_schedule(seconds: Iterable[float], places: int) -> float:
    """The makespan of list scheduling: whichever place is free first takes the next one, in order.

    Not the optimum, which nobody could know beforehand; but at most twice that, and what no idle place can beat.
    """
    free = [0.0] * places
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)

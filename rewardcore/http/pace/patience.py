"""How long one attempt may take before it is given up and asked again. Pure logic, told of every reply.

Without a `request_timeout` it is learnt, and generous: four times the slowest reply of late where others that left
later have long been answered, else eight times; twice as long each time the same request stalls. An endpoint that is
slow for all is only slow. Before a few have been heard nothing is known, and the deadline rules.
"""

from __future__ import annotations

import math

#: So many replies say how long one may take.
_ENOUGH = 8
#: So many that left later and are over say that one has been left behind.
_OVERTAKEN_BY = 16
#: How many times the slowest reply, and seconds at least, where one was left behind, and where one cannot tell.
_BEHIND, _ALONE = (4.0, 2.0), (8.0, 5.0)
#: A reply as slow as the slowest is forgotten after about a thousand quicker ones.
_FORGET = 0.999


class Patience:
    def __init__(self, fixed: float | None = None) -> None:
        self._fixed = fixed
        self._heard = 0
        self._slowest = 0.0

    def heard(self, seconds: float) -> None:
        self._heard += 1
        self._slowest = max(seconds, _FORGET * self._slowest)

    def seconds(self, overtaken_by: int, stalls: int) -> float:
        """How long an attempt may take that so many later ones have overtaken, after so many that stalled."""
        if self._fixed is not None:
            return self._fixed
        if self._heard < _ENOUGH:
            return math.inf
        times, least = _BEHIND if overtaken_by >= _OVERTAKEN_BY else _ALONE
        return max(least, times * self._slowest) * 2.0 ** min(stalls, 16)

"""Whether more at once still brings more, for an endpoint that answers late where another would refuse.

Judged by cohorts, whole rounds of requests, and by seconds per token over all of a cohort: one long reply is not taken
for load. Slow replies are only a suspicion. Then half the window is tried for a cohort: if as much comes back, it stays
halved; if not, replies as slow as these are worth it, and only slower ones are a suspicion again.
"""

from __future__ import annotations

import math

#: A cohort this many times slower than the quickest is suspected to be too large.
_SLOW = 1.5
_SMALLEST = 32
#: A cohort tells of its window where it was nearly full.
_STEADY = 0.8
#: What half as many must bring at least, in shares of what the window before it brought.
_AS_MUCH = 0.95


class Knee:
    """`is_slow` says that the window may not grow."""

    def __init__(self) -> None:
        self.is_slow = False
        self._quickest = math.inf
        self._trial: tuple[int, float, float] | None = None  # the window before it, what that brought, and its pace
        self._begin(1, 0)

    def _begin(self, number: int, window: int) -> None:
        size = max(_SMALLEST, window // 2)
        self._first, self._end = number, number + size
        self._left = size - size // 8  # who waits for the longest replies learns nothing for long
        self._looks = size + self._left
        self._crowd = self._tokens = 0  # what was in flight at each departure and each reply, in sum
        self._seconds = 0.0

    def departed(self, number: int, in_flight: int, window: int) -> None:
        """A new cohort begins as soon as the window is nearly full."""
        if not self._end and in_flight >= _STEADY * window:
            self._begin(number, window)
        if number < self._end:
            self._crowd += in_flight

    def landed(self, number: int, seconds: float, tokens: int | None, in_flight: int, window: int) -> int | None:
        """The window to go on with; None to go on as it is."""
        if number >= self._end + window > window:  # too many of the cohort have failed
            self._end = 0
        if not self._first <= number < self._end:
            return None
        self._seconds += seconds
        self._tokens += tokens or 1
        self._crowd += in_flight
        self._left -= 1
        if self._left:
            return None
        self._end = 0
        pace, crowd = self._seconds / self._tokens, self._crowd / self._looks
        self._quickest = min(self._quickest, pace)
        self.is_slow = pace > _SLOW * self._quickest
        return self._decide(crowd / max(pace, 1e-9), pace, window) if crowd >= _STEADY * window else None

    def _decide(self, flow: float, pace: float, window: int) -> int | None:
        if self._trial is not None:
            (before, brought, slow), self._trial = self._trial, None
            if flow < _AS_MUCH * brought:  # slow replies are worth it there, and more may be
                self._quickest, self.is_slow = slow, False
                return before
        if not self.is_slow:
            return None
        self._trial = window, flow, pace
        return max(1, window // 2)

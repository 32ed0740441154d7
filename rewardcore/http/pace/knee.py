"""Whether more at once still brings more, for an endpoint that answers late where another would refuse.

Judged by cohorts, whole rounds of requests, and by seconds per token over all of a cohort: one long reply is not taken
for load. Slow replies are only a suspicion. Then half the window is tried for a cohort: if as much comes back, it stays
halved; if not, the window is as before, and next time twice of it is tried, which must bring a tenth more.
"""

from __future__ import annotations

import math

#: A cohort this many times slower than the quickest is suspected to be too large.
_SLOW = 1.5
_SMALLEST = 32
#: A cohort tells of its window where it was nearly full.
_STEADY = 0.8
_LONGEST_REST = 64
#: What half as many must bring at least, and twice as many, in shares of what the present window brings.
_AS_MUCH, _MORE = 0.95, 1.1


class Knee:
    """`is_slow` says that the window may not grow."""

    def __init__(self) -> None:
        self.is_slow = False
        self._quickest = math.inf
        self._trial: tuple[int, float] | None = None  # the window before it, and what that brought
        self._tries_less = True
        self._rest = self._resting = 1
        self._begin(1, 0)

    def begin(self) -> None:
        """A new cohort, as soon as the window is nearly full."""
        self._end = 0

    def _begin(self, number: int, window: int) -> None:
        size = max(_SMALLEST, window // 2)
        self._first, self._end = number, number + size
        self._left = size - size // 8  # who waits for the longest replies learns nothing for long
        self._at_departure = self._at_landing = self._peak = 0  # in flight: the sums, and the most
        self._seconds, self._tokens = 0.0, 0

    def departed(self, number: int, in_flight: int, window: int) -> None:
        if not self._end and in_flight >= _STEADY * window:
            self._begin(number, window)
        if number < self._end:
            self._at_departure += in_flight
            self._peak = max(self._peak, in_flight)

    def landed(self, number: int, seconds: float, tokens: int | None, in_flight: int, window: int) -> int | None:
        """The window to go on with; None to go on as it is."""
        if number >= self._end + window > window:  # too many of the cohort have failed
            self.begin()
        if not self._first <= number < self._end:
            return None
        self._seconds += seconds
        self._tokens += tokens or 1
        self._at_landing += in_flight
        self._left -= 1
        if self._left:
            return None
        size, pace, choice = self._end - self._first, self._seconds / self._tokens, None
        self._quickest = min(1.001 * self._quickest, pace)
        if self._at_departure >= _STEADY * size * self._peak:  # else they left into a window that was still filling
            self.is_slow = pace > _SLOW * self._quickest
            crowd = (self._at_departure + self._at_landing) / (2 * size - size // 8)
            choice = self._decide(crowd / max(pace, 1e-9), window) if crowd >= _STEADY * window else None
        self.begin()
        return choice

    def failed(self, number: int) -> None:
        """A cohort does not wait for it."""
        if self._first <= number < self._end and self._left > 1:
            self._left -= 1

    def _decide(self, flow: float, window: int) -> int | None:
        if self._trial is not None:
            (before, reference), self._trial = self._trial, None
            if flow < (_MORE if window > before else _AS_MUCH) * reference:
                self._tries_less = not self._tries_less
                self._rest = self._resting = min(_LONGEST_REST, 2 * self._resting)
                return before
            self._rest = self._resting = 1
        if not self.is_slow:
            return None
        self._rest -= 1
        if self._rest > 0:
            return None
        self._trial = window, flow
        return max(1, window // 2) if self._tries_less else 2 * window

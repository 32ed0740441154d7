"""What an endpoint's headers allow: what is left of its quota, and what comes back of it until then.

One sign does not tell whether it comes back bit by bit, as in a bucket, or all at one moment, as in a window. Two tell:
in a window the moment stays where it is, in a bucket it moves away with what is used.
"""

from __future__ import annotations

import math

from ...reply import Quota

#: So many signs more for one than for the other are as good as any number.
_SURE = 8
#: Seconds after the moment that was told; twice as many each time that nothing was taken then.
_MARGIN = 0.02


class Allowance:
    """A bucket gives `rate` a second; in a window all is back at one moment."""

    def __init__(self) -> None:
        self.is_known = False  # when more is to be had
        self._rate = 0.0
        self._last, self._at = Quota(0, 0, 0.0), -math.inf
        self._votes = 0  # above 0 for a bucket, below for a window
        self._until, self._period, self._margin = -math.inf, 0.0, _MARGIN
        self._cost, self._unsure = 1.0, 1.0  # seconds are rounded, up or down, until some are told that are not
        self._number, self._budget = 0, math.inf  # the last departure that told, and the last one that may go

    def told(self, quota: Quota, number: int, at: float) -> None:
        """By the answer to this departure, of that moment."""
        if number <= self._number:
            return
        last, since, self._last, self._at = self._last, at - self._at, quota, at
        used, self._cost = quota.limit - quota.left, quota.cost or self._cost
        self._unsure = self._unsure if quota.reset == int(quota.reset) else 0.0
        if last.limit == quota.limit and last.left < last.limit:
            as_bucket = abs(last.reset * used / (last.limit - last.left) - quota.reset)
            as_window = abs(last.reset - since - quota.reset)
            if abs(as_window - as_bucket) > self._unsure:
                self._votes = min(_SURE, max(-_SURE, self._votes + (1 if as_window > as_bucket else -1)))
        if self._votes > 0 and 2 * used >= quota.limit and quota.reset > 0.0:
            self._rate = (used - 1) / (quota.reset - self._unsure / 2) / self._cost
        self.is_known = self._votes < 0 or self._rate > 0.0
        if quota.left >= 1:
            self._margin = _MARGIN
        elif at > self._until:
            self._margin = min(2 * self._margin, self._period / 4)
        self._number, self._budget = number, number + quota.left // self._cost
        self._until, self._period = at + quota.reset + self._margin, max(self._period, quota.reset)

    def opens_at(self, now: float, sent: int) -> float:
        """When the next may leave, where that is known."""
        full, is_window = sent + self._last.limit // self._cost, self._votes < 0
        if is_window and now >= self._until:  # all of it is back
            self._until, self._budget = now + self._period, full
        elif not is_window and self._budget + self._rate * (now - self._at) > full:
            self._at, self._budget = now, full
        if sent < self._budget:
            return -math.inf
        return self._until if is_window else self._at + (sent + 1 - self._budget) / self._rate

"""What an endpoint's headers mean: a bucket that refills all the time gives a rate, a window a moment to wait for.

One sign tells neither: so many are used, and all will be back in so many seconds. Two tell: in a window the moment
stays where it is, in a bucket it moves away with what is used.
"""

from __future__ import annotations

import math

from ...reply import Quota

#: So many signs more for one than for the other are as good as any number.
_SURE = 8
#: What is told of a bucket's rate is rounded to whole seconds, down or up: the highest of late is the truth.
_FADING = 0.98
#: Seconds after the moment that was told; twice as many each time that nothing was taken then.
_MARGIN = 0.02


class Allowance:
    """`holds_until` says when the next may leave, where it is a window; `rate` how many a second, where it is a bucket."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._last: Quota | None = None
        self._at = self._until = -math.inf
        self._period = 0.0
        self._votes = 0  # above 0 for a bucket
        self._number = 0
        self._budget = math.inf  # the last departure that is allowed until then
        self._cost = 1.0
        self._margin = _MARGIN

    @property
    def is_window(self) -> bool:
        return self._votes < 0

    def told(self, quota: Quota, number: int, at: float) -> None:
        """By the answer to this departure, which was seen at that moment."""
        last, since = self._last, at - self._at
        self._last, self._at, self._cost = quota, at, quota.cost or self._cost
        used = quota.limit - quota.left
        if last is not None and last.limit == quota.limit and last.left < last.limit:
            as_bucket = abs(last.reset * used / (last.limit - last.left) - quota.reset)
            as_window = abs(last.reset - since - quota.reset)
            self._votes += (as_window > as_bucket) - (as_bucket > as_window)
            self._votes = min(_SURE, max(-_SURE, self._votes))
        if self._votes > 0 and used > 0 and quota.reset > 0.0:
            self.rate = max(used / quota.reset / self._cost, _FADING * self.rate)
        if self.is_window and number > self._number:
            if quota.left < 1 and at > self._until:  # the moment was rounded down, or it is not the only one who asks
                self._margin = min(2 * self._margin, self._period / 4)
            elif quota.left >= 1:
                self._margin = _MARGIN
            self._number, self._until = number, at + quota.reset + self._margin
            self._period = max(self._period, quota.reset)
            self._budget = number + quota.left // self._cost

    def holds_until(self, now: float, sent: int) -> float:
        """When the next may leave: at once, but where a window's share is used up."""
        if sent < self._budget or not self.is_window or self._last is None:
            return -math.inf
        if now >= self._until:
            self._until, self._budget = now + self._period, sent + self._last.limit // self._cost
            return -math.inf
        return self._until

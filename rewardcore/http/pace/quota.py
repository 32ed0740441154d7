"""What an endpoint's headers mean: a bucket that refills all the time gives a rate, a window a moment to wait for.

One sign tells neither: so many are used, and all will be back in so many seconds. Two tell: in a window the moment
stays where it is, in a bucket it moves away with what is used.
"""

from __future__ import annotations

import math

from ...reply import Quota
from .states import Rate, Window
from .transitions import State

#: So many signs more for one than for the other are as good as any number.
_SURE = 8
#: A bucket's rate is told in seconds that are rounded, up or down: the highest of late is the truth.
_FADING = 0.98
#: So much more than the told rate is tried; and it is told early enough where so much is left.
_MORE_THAN_TOLD, _LITTLE = 1.1, 0.1
#: Seconds after the moment that was told; twice as many each time that nothing was taken then.
_MARGIN = 0.02


class Allowance:
    """`rate` is how many a second a bucket gives; where it is a window, `opens_at` says when the next may leave."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.is_window = False
        self._last, self._at = Quota(0, 0, 0.0), -math.inf
        self._votes = 0  # above 0 for a bucket
        self._until, self._period, self._margin = -math.inf, 0.0, _MARGIN
        self._number, self._budget = 0, math.inf  # the last departure that told, and the last one that may go
        self._cost = 1.0

    def told(self, quota: Quota, number: int, at: float) -> None:
        """By the answer to this departure, of that moment."""
        last, since, self._last, self._at = self._last, at - self._at, quota, at
        self._cost = quota.cost or self._cost
        used = quota.limit - quota.left
        if last.limit == quota.limit and last.left < last.limit:
            as_bucket = abs(last.reset * used / (last.limit - last.left) - quota.reset)
            as_window = abs(last.reset - since - quota.reset)
            unsure = 1.0 if _is_whole(last.reset) and _is_whole(quota.reset) else 0.0  # rounded, up or down
            votes = self._votes + (as_window > as_bucket + unsure) - (as_bucket > as_window + unsure)
            self._votes = min(_SURE, max(-_SURE, votes))
            self.is_window = self._votes < 0
        if self._votes > 0 and 2 * used >= quota.limit and quota.reset > 0.0:
            seconds = quota.reset - 0.5 * (
                quota.reset >= 1 and quota.reset == int(quota.reset)
            )  # whole ones are rounded
            self.rate = max(used / seconds / self._cost, _FADING * self.rate)
        if self.is_window and number > self._number:
            is_early = quota.left < 1 and at > self._until
            self._margin = min(2 * self._margin, self._period / 4) if is_early else self._margin
            self._margin = _MARGIN if quota.left >= 1 else self._margin
            self._number, self._budget = number, number + quota.left // self._cost
            self._until, self._period = at + quota.reset + self._margin, max(self._period, quota.reset)

    def opens_at(self, now: float, sent: int) -> float:
        if sent < self._budget or not self.is_window:
            return -math.inf
        if now >= self._until:  # all of it is back
            self._until, self._budget = now + self._period, sent + self._last.limit // self._cost
            return -math.inf
        return self._until

    def change(self, state: State, latency: float, ceiling: int) -> tuple[str, Window | Rate] | None:
        """What a bucket's rate makes of the pace: it rules while little is left."""
        quota, rate = self._last, self.rate
        if not rate or self.is_window:
            return None
        if isinstance(state, Rate):
            state.most = _MORE_THAN_TOLD * rate
            if state.before is not None and quota.left >= state.before.window * (quota.cost or 1):
                return "lifted", state.before
        elif isinstance(state, Window) and quota.left < _LITTLE * quota.limit and rate * latency < state.window:
            return "quota", Rate(rate, ceiling, state, _MORE_THAN_TOLD * rate)
        return None


def _is_whole(seconds: float) -> bool:
    return seconds == int(seconds)

"""How many requests may be in flight: pure logic, told of every outcome, asked only for `current`.

Two ways to begin: `Limit.fixed(n)` starts at its ceiling, `Limit.auto()` starts low and doubles each round while the
endpoint keeps up. From the first trouble on both are the same: a burst of 429s cuts the limit once, seconds per
output token that rise with the load cut it gently, a remaining-quota header bounds it, and each round without trouble
gives one place back. Nothing here waits or counts what is in flight.
"""

from __future__ import annotations

AUTO_START = 8
AUTO_CEILING = 512
_CUT = 0.7
_EASE = 0.9
#: Seconds per token this many times over the best seen is queueing, not noise.
_SLOW = 2.0
_MEMORY = 0.1


class Limit:
    def __init__(self, start: int, ceiling: int, *, adapts_to_latency: bool) -> None:
        self.current = start
        self.ceiling = ceiling
        self._doubling = start < ceiling
        self._adapts_to_latency = adapts_to_latency
        self._progress = 0
        self._cut_at = float("-inf")
        self._heard = 0
        self._pace = 0.0
        self._best_pace = 0.0

    @classmethod
    def fixed(cls, limit: int) -> Limit:
        return cls(limit, limit, adapts_to_latency=False)

    @classmethod
    def auto(cls) -> Limit:
        return cls(AUTO_START, AUTO_CEILING, adapts_to_latency=True)

    def succeeded(self, sent_at: float, now: float, tokens: int | None = None, quota: int | None = None) -> None:
        """A reply came; `tokens` is how many the judge wrote, `quota` how many requests are left to us."""
        if quota is not None and quota < self.current:
            self._cut(now, max(1, quota))
            return
        if self._adapts_to_latency and self._is_slow((now - sent_at) / max(1, tokens or 1)):
            if sent_at >= self._cut_at:
                self._cut(now, max(1, int(self.current * _EASE)))
            return
        if self.current >= self.ceiling:
            return
        self._progress += 1
        if self._doubling or self._progress >= self.current:
            self._progress = 0
            self.current += 1

    def rate_limited(self, sent_at: float, now: float) -> None:
        """A 429. Requests that were sent before the last cut belong to the burst that caused it."""
        if sent_at >= self._cut_at:
            self._cut(now, max(1, int(self.current * _CUT)))

    def _cut(self, now: float, to: int) -> None:
        self.current = to
        self._doubling = False
        self._progress = 0
        self._cut_at = now

    def _is_slow(self, pace: float) -> bool:
        self._heard += 1
        self._pace += max(_MEMORY, 1.0 / self._heard) * (pace - self._pace)
        # One quick reply is no yardstick, and what is slow at the load we began with is not slow through our load.
        if self._heard <= AUTO_START or self.current <= AUTO_START or self._pace < self._best_pace:
            self._best_pace = self._pace
        return self._pace > _SLOW * self._best_pace

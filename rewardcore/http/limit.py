"""How many requests may be in flight: pure logic, told of every departure and outcome, asked only for `current`.

It works as TCP does. Below a threshold each reply adds a place, so the limit doubles each round; above it a whole round
does. `Limit.fixed(n)` starts at its ceiling, `Limit.auto()` starts low with no threshold yet. A burst of 429s cuts the
limit once and sets the threshold there; seconds per output token that rise with the load cut it gently; a
remaining-quota header bounds it. Departures are numbered, so a burst is known by its numbers: no clock is needed.
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
        self._threshold = ceiling
        self._adapts_to_latency = adapts_to_latency
        self.sent = 0
        self._burst_end = 0
        self._progress = 0
        self._replied_since_cut = True
        self._heard = 0
        self._pace = 0.0
        self._best_pace = 0.0

    @classmethod
    def fixed(cls, limit: int) -> Limit:
        return cls(limit, limit, adapts_to_latency=False)

    @classmethod
    def auto(cls, places: int = AUTO_CEILING) -> Limit:
        return cls(min(AUTO_START, places), min(AUTO_CEILING, places), adapts_to_latency=True)

    def departed(self) -> int:
        """A request goes out; its number."""
        self.sent += 1
        return self.sent

    def succeeded(self, number: int, seconds: float, tokens: int | None = None, quota: int | None = None) -> None:
        """A reply came; `tokens` is how many the judge wrote, `quota` how many requests are left to us."""
        self._replied_since_cut = True
        if self.current == self.ceiling and quota is None and not self._adapts_to_latency:
            return  # nearly always, where the limit is fixed
        if quota is not None and quota < self.current:
            self.current = max(1, quota)
        elif self._adapts_to_latency and self._is_slow(seconds / max(1, tokens or 1)):
            self._cut(number, _EASE)
        # A place more is earned only where the present ones are used: by what was sent since this one left.
        elif self.current < self.ceiling and 2 * (self.sent - number + 1) >= self.current:
            self._progress += 1
            if self.current < self._threshold or self._progress >= self.current:
                self._progress = 0
                self.current += 1

    def rate_limited(self, number: int) -> None:
        """A 429."""
        self._cut(number, _CUT)

    def _cut(self, number: int, factor: float) -> None:
        """Once for all that was sent before the cut. Cuts on end without a reply between them keep the threshold."""
        if number <= self._burst_end:
            return
        self.current = max(1, int(self.current * factor))
        if self._replied_since_cut:
            self._threshold = self.current
        self._replied_since_cut = False
        self._burst_end = self.sent
        self._progress = 0

    def _is_slow(self, pace: float) -> bool:
        self._heard += 1
        self._pace += max(_MEMORY, 1.0 / self._heard) * (pace - self._pace)
        # One quick reply is no yardstick, and what is slow at the load we began with is not slow through our load.
        if self._heard <= AUTO_START or self.current <= AUTO_START or self._pace < self._best_pace:
            self._best_pace = self._pace
        return self._pace > _SLOW * self._best_pace

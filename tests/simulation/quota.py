"""Endpoints that bear so many requests in a time and say so, honestly, in the headers of OpenAI or of Anthropic."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rewardcore.reply import Quota


@dataclass
class Window:
    """So many in each window of so many seconds, which begins with the first request after the last one."""

    count: int
    seconds: float
    style: str = "openai"
    _began: float = -math.inf
    _used: int = 0

    def opens_in(self, now: float) -> float:
        """Seconds until it takes another; 0.0 takes this one."""
        if now >= self._began + self.seconds:
            self._began, self._used = now, 0
        if self._used < self.count:
            self._used += 1
            return 0.0
        return self._began + self.seconds - now

    def headers(self, now: float) -> dict[str, str]:
        return _headers(self.style, self.count, self.count - self._used, self._began + self.seconds, now)

    def check(self, quota: Quota) -> str:
        is_wrong = quota.reset > self.seconds + 1.0
        return f"a window of {self.seconds:g} s is read as one of {quota.reset:g} s" if is_wrong else ""


@dataclass
class Bucket:
    """So many a second, and so many in a burst; `reset` is when it is full again."""

    rate: float
    burst: int
    style: str = "openai"
    _held: float = field(default=-1.0)
    _at: float = 0.0

    def opens_in(self, now: float) -> float:
        held = self.burst if self._held < 0 else min(self.burst, self._held + (now - self._at) * self.rate)
        opens = (1.0 - held) / self.rate
        self._held, self._at = (held - 1.0, now) if opens <= 1e-9 else (held, now)
        return max(0.0, opens)

    def headers(self, now: float) -> dict[str, str]:
        full = now + (self.burst - self._held) / self.rate
        return _headers(self.style, self.burst, math.floor(self._held), full, now)

    def check(self, quota: Quota) -> str:
        """What is read as fewer a second than it takes makes a run slower than it need be."""
        told_early = quota.reset - (0.0 if self.style == "openai" else 1.0)  # a moment may be rounded up
        rate = (quota.limit - quota.left) / max(1e-3, told_early)
        return f"{self.rate:g} requests a second are read as {rate:g}" if rate < 0.8 * self.rate else ""


def draw_quota(dice: random.Random) -> Window | Bucket:
    style = dice.choice(["openai", "openai", "openai in whole seconds", "anthropic"])
    if dice.random() < 0.5:
        count, seconds = dice.choice([(5, 2.0), (10, 4.0), (50, 10.0)])
        return Window(count, seconds, style)
    rate, burst = dice.choice([(2.0, 4), (5.0, 20), (20.0, 20)])
    return Bucket(rate, burst)  # rounded to whole seconds, what is told of one that is soon full again is nonsense


def _headers(style: str, limit: int, left: int, moment: float, now: float) -> dict[str, str]:
    names, name, seconds = ("limit", "remaining", "reset"), "x-ratelimit-{}-requests", max(0.001, moment - now)
    reset = f"{math.ceil(seconds)}s" if style == "openai in whole seconds" else f"{seconds:.3f}s"
    if style == "anthropic":
        name, reset = "anthropic-ratelimit-requests-{}", datetime.fromtimestamp(math.ceil(moment), UTC).isoformat()
    told = (str(limit), str(left), reset)
    return {name.format(part): value for part, value in zip(names, told, strict=True)}

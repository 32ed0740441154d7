"""Endpoints that bear so many requests in a time and say so, honestly, in `x-ratelimit-*` headers.

Told or not, the endpoint is the same: `costs` plays it both ways, and a run that is told its quota must not be slower.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from rewardcore.reply import Quota

#: A run whose quota is told takes at most so many times as long as one whose quota is not, and so many seconds more.
TIMES, SECONDS = 1.3, 2.0
#: Whether the tests ask for that. The pace of today takes a window for a bucket, and does not keep it.
IS_CHECKED = False


@dataclass
class Window:
    """So many in each window of so many seconds, which begins with the first request after the last one."""

    count: int
    seconds: float
    is_whole: bool = False  # seconds are told as whole numbers, rounded up
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
        reset = self._began + self.seconds - now
        return _headers(self.count, self.count - self._used, math.ceil(reset) if self.is_whole else reset)

    def check(self, quota: Quota) -> str:
        is_wrong = quota.reset > self.seconds + self.is_whole
        return f"a window of {self.seconds:g} s is read as one of {quota.reset:g} s" if is_wrong else ""


@dataclass
class Bucket:
    """So many a second, and so many in a burst; `reset` is when it is full again, as OpenAI tells it."""

    rate: float
    burst: int
    _held: float = field(default=-1.0)
    _at: float = 0.0

    def opens_in(self, now: float) -> float:
        held = self.burst if self._held < 0 else min(self.burst, self._held + (now - self._at) * self.rate)
        opens = (1.0 - held) / self.rate
        self._held, self._at = (held - 1.0, now) if opens <= 1e-9 else (held, now)
        return max(0.0, opens)

    def headers(self, now: float) -> dict[str, str]:
        return _headers(self.burst, math.floor(self._held), (self.burst - self._held) / self.rate)

    def check(self, quota: Quota) -> str:
        """What is read as fewer a second than it takes makes a run slower than it need be."""
        rate = (quota.limit - quota.left) / quota.reset
        return f"{self.rate:g} requests a second are read as {rate:g}" if rate < 0.8 * self.rate else ""


def draw_quota(dice: random.Random) -> Window | Bucket:
    if dice.random() < 0.5:
        count, seconds = dice.choice([(5, 2.0), (10, 4.0), (50, 10.0)])
        return Window(count, seconds, dice.random() < 0.3)
    rate, burst = dice.choice([(2.0, 4), (5.0, 20), (20.0, 20)])
    return Bucket(rate, burst)


def _headers(limit: int, left: int, reset: float) -> Mapping[str, str] | dict[str, str]:
    names = ("limit", "remaining", "reset")
    told = (str(limit), str(left), f"{max(0.001, reset):.3f}s")
    return {f"x-ratelimit-{name}-requests": value for name, value in zip(names, told, strict=True)}


def seconds_of(seed: int, *, tells: bool) -> tuple[float, int]:
    """How long one batch takes at an endpoint with a quota, and how many of it are lost."""
    from tests.simulation.history import one_batch  # which plays what is drawn here

    return one_batch(seed, tells=tells)


def costs(seed: int) -> str:
    """What being told of a quota costs, if it costs more than it may; nothing may be lost by it."""
    (told, lost), (untold, _) = seconds_of(seed, tells=True), seconds_of(seed, tells=False)
    if lost:
        return f"seed {seed}: {lost} samples are lost where the quota is told"
    if told > TIMES * untold + SECONDS:
        return f"seed {seed}: {told:.1f} s where the quota is told, {untold:.1f} s where it is not"
    return ""

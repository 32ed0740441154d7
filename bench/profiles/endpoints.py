"""Endpoints of every temper: what each does with a request, decided by the time and by what it has accepted. No IO.

What is drawn belongs to the sample, not to the order of arrival: every policy meets the same latencies, lengths and
costs, so makespans compare. `opens_at` is the whole truth about refusals, and what a client that knew it would ask.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

#: Seconds within which a refill or the end of a storm counts as reached: sums of floats are not exact.
_TICK = 1e-9

#: How headers tell a limit, what is left of it, and in how many seconds all of it is back; at that moment.
Style = Callable[[float, float, float, float], tuple[tuple[str, str], ...]]


class Decision(NamedTuple):
    """What a request meets: a status, after so many seconds, with so many tokens and these headers."""

    status: int
    seconds: float
    tokens: int = 0
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(kw_only=True)
class Endpoint:
    """Bears `capacity` at once, or any load, and refuses at once; a reply takes `seconds`, log-normal by `spread`."""

    capacity: int | None = None
    refusal: int = 429
    retry_after: float | None = None
    seconds: float = 2.0
    spread: float = 0.0
    seed: int = 2026
    _drawn: list[tuple[float, float]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def decide(self, sample: int, now: float, in_flight: int) -> Decision:
        """`in_flight` were accepted and are not answered yet; `now` never runs backwards."""
        if self.opens_at(sample, now, in_flight) > now + _TICK:
            asked = () if self.retry_after is None else (("retry-after", f"{self.retry_after:g}"),)
            return Decision(self.refusal_at(now), 0.0, 0, asked + self.told_at(now))
        self.accept(sample)
        seconds, tokens = self.seconds_of(sample, now, in_flight), self.tokens_of(sample)
        return Decision(200, seconds, tokens, self.told_at(now))

    def opens_at(self, sample: int, now: float, in_flight: int) -> float:
        """When this sample would be accepted if nothing were answered meanwhile: now, later, or never."""
        bears = self.bears(now)
        return now if bears is None or in_flight < bears else math.inf

    def bears(self, now: float) -> float | None:
        """How many at once, for the plot too; None for any load."""
        return self.capacity

    def accept(self, sample: int) -> None:
        """Whatever an accepted request uses up."""

    def refusal_at(self, now: float) -> int:
        return self.refusal

    def told_at(self, now: float) -> tuple[tuple[str, str], ...]:
        """What its headers say of its quota."""
        return ()

    def seconds_of(self, sample: int, now: float, in_flight: int) -> float:
        return self.seconds * math.exp(self.spread * self.deviation(sample)[0])

    def tokens_of(self, sample: int) -> int:
        return 80

    def deviation(self, sample: int) -> tuple[float, float]:
        """Two standard normal numbers, this sample's own in whatever order the samples come."""
        while len(self._drawn) <= sample:
            self._drawn.append((self._draw.gauss(0.0, 1.0), self._draw.gauss(0.0, 1.0)))
        return self._drawn[sample]


@dataclass(kw_only=True)
class MovingCap(Endpoint):
    """Bears `capacity` and `narrow` in turn, each for `period` seconds."""

    capacity: int = 80
    narrow: int = 40
    period: float = 30.0

    def bears(self, now: float) -> float:
        return self.narrow if (now + _TICK) % (2 * self.period) >= self.period else self.capacity

    def opens_at(self, sample: int, now: float, in_flight: int) -> float:
        if in_flight < self.bears(now):
            return now
        next_turn = (math.floor((now + _TICK) / self.period) + 1) * self.period
        return next_turn if in_flight < self.bears(next_turn) else math.inf


@dataclass(kw_only=True)
class Bucket(Endpoint):
    """Refills `rate` a second up to `burst`; a request takes one, or with `tokens_each` its log-normal cost."""

    rate: float
    burst: float
    tokens_each: float | None = None
    cost_spread: float = 0.6
    tells: Style | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._level, self._filled_at = self.burst, 0.0

    def bears(self, now: float) -> float:
        """In the long run: what leaves in a second, times how long it stays."""
        mean_cost = (self.tokens_each or 1.0) * math.exp(self.cost_spread**2 / 2 if self.tokens_each else 0.0)
        return self.rate / mean_cost * self.seconds

    def opens_at(self, sample: int, now: float, in_flight: int) -> float:
        self._level = min(self.burst, self._level + (now - self._filled_at) * self.rate)
        self._filled_at = now
        missing = self.cost_of(sample) - self._level
        return now + missing / self.rate if missing > _TICK * self.rate else now

    def accept(self, sample: int) -> None:
        self._level -= self.cost_of(sample)

    def told_at(self, now: float) -> tuple[tuple[str, str], ...]:
        if self.tells is None:
            return ()
        return self.tells(self.burst, self._level, (self.burst - self._level) / self.rate, now)

    def cost_of(self, sample: int) -> float:
        if self.tokens_each is None:
            return 1.0
        cost = self.tokens_each * math.exp(self.cost_spread * self.deviation(sample)[1])
        return min(8 * self.tokens_each, max(0.1 * self.tokens_each, cost))


@dataclass(kw_only=True)
class FixedWindow(Endpoint):
    """Takes `limit` in every `period` seconds, from the first of them on if they are all gone at once."""

    limit: int
    period: float
    tells: Style | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._window, self._taken = 0, 0

    def bears(self, now: float) -> float:
        """In the long run."""
        return self.limit / self.period * self.seconds

    def opens_at(self, sample: int, now: float, in_flight: int) -> float:
        window = int((now + _TICK) / self.period)
        if window > self._window:
            self._window, self._taken = window, 0
        return now if self._taken < self.limit else (self._window + 1) * self.period

    def accept(self, sample: int) -> None:
        self._taken += 1

    def told_at(self, now: float) -> tuple[tuple[str, str], ...]:
        if self.tells is None:
            return ()
        return self.tells(self.limit, self.limit - self._taken, (self._window + 1) * self.period - now, now)


def as_openai(limit: float, left: float, reset: float, now: float) -> tuple[tuple[str, str], ...]:
    """Such as `120ms`."""
    return _told("x-ratelimit-{}-requests", limit, left, f"{reset * 1000:.0f}ms")


def as_seconds(limit: float, left: float, reset: float, now: float) -> tuple[tuple[str, str], ...]:
    """Whole seconds, as many gateways tell them."""
    return _told("x-ratelimit-{}-requests", limit, left, f"{math.ceil(reset)}")


def as_anthropic(limit: float, left: float, reset: float, now: float) -> tuple[tuple[str, str], ...]:
    """A moment, to the second."""
    moment = datetime.fromtimestamp(math.ceil(now + reset), UTC)
    return _told("anthropic-ratelimit-requests-{}", limit, left, f"{moment:%Y-%m-%dT%H:%M:%SZ}")


def _told(name: str, limit: float, left: float, reset: str) -> tuple[tuple[str, str], ...]:
    values = {"limit": f"{limit:.0f}", "remaining": f"{math.floor(max(0.0, left))}", "reset": reset}
    return tuple((name.format(word), value) for word, value in values.items())


@dataclass(kw_only=True)
class Saturating(Endpoint):
    """Never refuses, but is slower with each one more: twice as slow at `knee` at once, as vLLM is."""

    seconds: float = 1.0
    knee: float = 50.0

    def seconds_of(self, sample: int, now: float, in_flight: int) -> float:
        return super().seconds_of(sample, now, in_flight) * (1.0 + (in_flight + 1) / self.knee)


@dataclass(kw_only=True)
class SlowStart(Endpoint):
    """`factor` times slower for whatever comes in the first seconds."""

    until: float = 20.0
    factor: float = 10.0

    def seconds_of(self, sample: int, now: float, in_flight: int) -> float:
        return super().seconds_of(sample, now, in_flight) * (self.factor if now < self.until else 1.0)


@dataclass(kw_only=True)
class Storms(Endpoint):
    """Answers everything with 500 in the last `length` of every `period` seconds; what it has accepted goes on."""

    period: float = 30.0
    length: float = 3.0

    def is_stormy(self, now: float) -> bool:
        return (now + _TICK) % self.period >= self.period - self.length

    def bears(self, now: float) -> float | None:
        return 0.0 if self.is_stormy(now) else self.capacity

    def opens_at(self, sample: int, now: float, in_flight: int) -> float:
        if self.is_stormy(now):
            return math.ceil((now + _TICK) / self.period) * self.period
        return super().opens_at(sample, now, in_flight)

    def refusal_at(self, now: float) -> int:
        return 500 if self.is_stormy(now) else self.refusal


@dataclass(kw_only=True)
class ByChance(Endpoint):
    """Refuses a `share`, however slowly it is asked: one replica of many is broken, or others ask there too."""

    share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._dice = random.Random(self.seed)

    def decide(self, sample: int, now: float, in_flight: int) -> Decision:
        if self._dice.random() < self.share:
            return Decision(self.refusal, 0.0)
        return super().decide(sample, now, in_flight)


@dataclass(kw_only=True)
class LongTail(Endpoint):
    """Bears any load; replies of very different length, and the time goes by the length."""

    first_token: float = 0.3
    seconds_per_token: float = 0.02
    tokens_each: float = 80.0
    length_spread: float = 1.0

    def tokens_of(self, sample: int) -> int:
        tokens = self.tokens_each * math.exp(self.length_spread * self.deviation(sample)[0])
        return int(min(2000.0, max(5.0, tokens)))

    def seconds_of(self, sample: int, now: float, in_flight: int) -> float:
        return self.first_token + self.seconds_per_token * self.tokens_of(sample)


@dataclass(frozen=True)
class Profile:
    """`best` is the fixed setting that is quickest over five batches, as a sweep finds it; `may_refuse` is a gate."""

    name: str
    about: str
    open: Callable[..., Endpoint]
    best: int
    may_refuse: float = 0.02

    def seeded(self, seed: int) -> Profile:
        """The same temper, with other draws."""
        return replace(self, open=partial(self.open, seed=seed))


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            "cap-429", "80 at once, then 429 with Retry-After: 1", partial(Endpoint, capacity=80, retry_after=1.0), 80
        ),
        Profile("cap-503", "80 at once, then 503", partial(Endpoint, capacity=80, refusal=503), 80),
        Profile("moving-cap", "80 and 40 at once in turn, 30 s each", partial(MovingCap, spread=0.3), 80),
        Profile(
            "requests-bucket", "50 requests a second, 50 in a burst", partial(Bucket, rate=50, burst=50), 100, 0.05
        ),
        Profile(
            "tokens-bucket",
            "12,500 tokens a second, about 500 a request, 125,000 in a burst",
            partial(Bucket, rate=12_500, burst=125_000, tokens_each=500),
            256,
            0.05,
        ),
        Profile(
            "window-told",
            "100 in every 4 s, told in headers",
            partial(FixedWindow, limit=100, period=4.0, seconds=0.5, tells=as_openai),
            32,
            0.05,
        ),
        Profile(
            "window-seconds",
            "50 in every 2 s, told in headers in whole seconds",
            partial(FixedWindow, limit=50, period=2.0, seconds=0.5, tells=as_seconds),
            32,
            0.05,
        ),
        Profile(
            "bucket-openai",
            "50 requests a second, 50 in a burst, told in OpenAI's headers",
            partial(Bucket, rate=50, burst=50, tells=as_openai),
            128,
            0.05,
        ),
        Profile(
            "bucket-anthropic",
            "50 requests a second, 500 in a burst, told in Anthropic's headers",
            partial(Bucket, rate=50, burst=500, tells=as_anthropic),
            512,
            0.05,
        ),
        Profile(
            "retry-after",
            "80 at once, then 429 with Retry-After: 10",
            partial(Endpoint, capacity=80, retry_after=10.0),
            80,
        ),
        Profile("saturating", "1 s × (1 + n / 50) with n at once", Saturating, 512),
        Profile(
            "slow-start",
            "100 at once, and ten times slower for 20 s",
            partial(SlowStart, capacity=100, refusal=503),
            100,
        ),
        Profile(
            "storms",
            "80 at once, and 500 for 3 s in every 30 s",
            partial(Storms, capacity=80, refusal=503, spread=0.2),
            100,
        ),
        Profile("long-tail", "any load, replies of 5 to 2,000 tokens", LongTail, 1000),
        Profile("tiny", "2 at once, then 503", partial(Endpoint, capacity=2, refusal=503), 2),
        Profile("huge", "1,000 at once, then 429", partial(Endpoint, capacity=1000), 1000),
    )
}

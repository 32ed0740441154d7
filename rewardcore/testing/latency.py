"""How long a simulated judge takes, and when it refuses: a seeded model without IO or a clock of its own.

One formula covers every case: (log-normal time to first token + tokens x time per token) x load x straggler;
a constant is a spread of zero. What is drawn for a request depends only on the seed, the request's key and
how often that key was drawn before, so that every mode meets the same latencies in whatever order it sends.
Not for waiting: the server waits in real time, and a test may in virtual time.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from http import HTTPStatus
from statistics import NormalDist, median, quantiles
from struct import Struct
from typing import Any, NamedTuple

from ..failures import ConfigurationError

NORMAL = NormalDist()
THREE_DRAWS = Struct("<3Q")
FAR_OUT = 4.0  # standard deviations of log latency beyond which `fit` calls a reply a straggler


def option(default: float | int | None, kind: type[float] | type[int], help: str) -> Any:
    """A field of Profile that is also a command-line flag."""
    return field(default=default, metadata={"kind": kind, "help": help})


@dataclass(frozen=True)
class Profile:
    """An endpoint's temper. The default answers at once and never refuses.

    The one list of what can be simulated: each field is a flag of `rewardcore simulate` and of the server's process.
    """

    latency: float = option(0.0, float, "median seconds to the first token")
    spread: float = option(0.0, float, "standard deviation of log(seconds to the first token); 0 is constant")
    tokens: int = option(0, int, "tokens in a reply")
    seconds_per_token: float = option(0.0, float, "seconds for each of them")
    load_growth: float = option(0.0, float, "slow-down for each other request in flight; 0.01 is 1 % each")
    concurrency_limit: int | None = option(None, int, "answer 429 above this many in flight")
    rate_limit: float | None = option(None, float, "answer 429 above this many requests a second")
    retry_after: float = option(1.0, float, "seconds in the Retry-After header of a 429")
    error_fraction: float = option(0.0, float, "fraction of requests answered with a server error")
    error_status: int = option(503, int, "status of these server errors")
    storm_start: int = option(0, int, "first request of a storm of server errors, counted from 0")
    storm_length: int = option(0, int, "number of requests in the storm")
    outage_start: float = option(0.0, float, "seconds after the first request until an outage of server errors")
    outage_seconds: float = option(0.0, float, "how long the outage lasts")
    straggler_fraction: float = option(0.0, float, "fraction of replies that are slowed down")
    straggler_factor: float = option(10.0, float, "how many times slower these are")

    def __post_init__(self) -> None:
        for f in fields(self):
            name, value, kind = f.name, getattr(self, f.name), f.metadata["kind"]
            if value is None and f.default is None:
                continue
            if not isinstance(value, int if kind is int else int | float) or not (math.isfinite(value) and value >= 0):
                number = "a whole number" if kind is int else "a finite number"
                raise ConfigurationError(f"{flag(name)} must be {number} of at least 0, not {value!r}")
            if name.endswith("_fraction") and value > 1:
                raise ConfigurationError(f"{flag(name)} must be a fraction from 0 to 1, not {value}")
        if self.error_status < 500 or self.error_status not in set(HTTPStatus):
            raise ConfigurationError(f"--error-status must be a server error such as 503, not {self.error_status}")
        if self.rate_limit == 0:
            raise ConfigurationError("--rate-limit must be above 0; leave it out for no limit")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Profile:
        return cls(**json.loads(text))

    def to_arguments(self) -> list[str]:
        """Command-line flags for every field that is not at its default."""
        values = ((f, getattr(self, f.name)) for f in fields(self))
        return [part for f, value in values if value != f.default for part in (flag(f.name), str(value))]

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Profile:
        return cls(**{f.name: getattr(arguments, f.name) for f in fields(cls)})

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("latency profile")
        for f in fields(cls):
            text = f"{f.metadata['help'].replace('%', '%%')} (%(default)s)"
            group.add_argument(flag(f.name), type=f.metadata["kind"], default=f.default, help=text)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class Decision(NamedTuple):
    """What a request meets: a status, after so many seconds, with these headers."""

    status: int
    seconds: float
    headers: tuple[tuple[str, str], ...] = ()


class LatencyModel:
    """Decides for one request after another; `reset` starts the same story again."""

    def __init__(self, profile: Profile, seed: int = 0) -> None:
        self.profile = profile
        self.seed = seed
        self._seed = seed.to_bytes(8, "little", signed=True)
        p = profile
        self._is_random = bool(p.spread or p.error_fraction or p.straggler_fraction)
        self._burst = max(1.0, p.rate_limit or 0.0)  # a second's worth may come at once
        self.reset()

    def reset(self) -> None:
        self._arrivals = 0
        self._began: float | None = None
        self._attempts: dict[bytes, int] = {}
        self._allowance, self._refilled = self._burst, -math.inf

    def decide(self, key: int | bytes, in_flight: int, now: float) -> Decision:
        """`in_flight` counts this request too; `now` is in seconds and never runs backwards."""
        p = self.profile
        arrival, self._arrivals = self._arrivals, self._arrivals + 1
        headers: tuple[tuple[str, str], ...] = ()
        if self._began is None:
            self._began = now
        if p.rate_limit is not None:
            self._allowance = min(self._burst, self._allowance + (now - self._refilled) * p.rate_limit)
            self._refilled = now
            admitted = self._allowance >= 1.0
            self._allowance -= admitted
            headers = (("x-ratelimit-remaining-requests", str(int(self._allowance))),)
            if not admitted:
                return Decision(429, 0.0, (*headers, ("retry-after", f"{p.retry_after:g}")))
        if p.concurrency_limit is not None and in_flight > p.concurrency_limit:
            return Decision(429, 0.0, (*headers, ("retry-after", f"{p.retry_after:g}")))
        is_out = p.outage_start <= now - self._began < p.outage_start + p.outage_seconds
        if is_out or p.storm_start <= arrival < p.storm_start + p.storm_length:
            return Decision(p.error_status, 0.0, headers)
        if not self._is_random:
            return Decision(200, self._seconds(0.0, in_flight), headers)
        first_token, error, straggler = self._draw(key)
        if error < p.error_fraction:
            return Decision(p.error_status, 0.0, headers)
        seconds = self._seconds(NORMAL.inv_cdf(first_token), in_flight)
        if straggler < p.straggler_fraction:
            seconds *= p.straggler_factor
        return Decision(200, seconds, headers)

    def _seconds(self, deviations: float, in_flight: int) -> float:
        p = self.profile
        first_token = p.latency * math.exp(p.spread * deviations)
        return (first_token + p.tokens * p.seconds_per_token) * (1.0 + p.load_growth * (in_flight - 1))

    def _draw(self, key: int | bytes) -> tuple[float, float, float]:
        """Three uniform numbers strictly between 0 and 1; another three each time the same key is seen."""
        content = key if isinstance(key, bytes) else key.to_bytes(8, "little", signed=True)
        attempt = self._attempts[content] = self._attempts.get(content, 0) + 1
        digest = blake2b(content + attempt.to_bytes(4, "little"), key=self._seed, digest_size=24).digest()
        one, two, three = ((bits >> 12) + 0.5 for bits in THREE_DRAWS.unpack(digest))
        return one / 2**52, two / 2**52, three / 2**52

    def quantile(self, p: float, in_flight: int = 1) -> float:
        """The analytic p-quantile (0 < p < 1) of the seconds that an answered request takes at this load."""
        share, factor = self.profile.straggler_fraction, self.profile.straggler_factor
        if not share:
            return self._seconds(NORMAL.inv_cdf(p), in_flight)
        low, high = 0.0, self._seconds(8.0, in_flight) * max(1.0, factor)
        for _ in range(100):  # two populations have no closed form: bisect their common distribution
            middle = (low + high) / 2
            ordinary, straggling = (self._share_within(middle / by, in_flight) for by in (1.0, factor))
            is_below = (1 - share) * ordinary + share * straggling < p
            low, high = (middle, high) if is_below else (low, middle)
        return high

    def _share_within(self, seconds: float, in_flight: int) -> float:
        """The share of replies, stragglers apart, that take at most so many seconds."""
        p = self.profile
        first_token = seconds / (1.0 + p.load_growth * (in_flight - 1)) - p.tokens * p.seconds_per_token
        if not p.spread or not p.latency or first_token <= 0:
            return float(first_token >= p.latency)
        return NORMAL.cdf(math.log(first_token / p.latency) / p.spread)


def fit(latencies: Iterable[float]) -> Profile:
    """The profile of an endpoint with these recorded latencies (seconds), at the load they were recorded at.

    The spread comes from the middle two thirds, so that a few stragglers do not pass for a wide one.
    """
    seconds = sorted(latencies)
    if len(seconds) < 8 or seconds[0] <= 0 or not math.isfinite(seconds[-1]):
        raise ConfigurationError(f"fit needs 8 or more latencies, each finite and above 0; it was given {len(seconds)}")
    logs = [math.log(value) for value in seconds]
    middle, sixths = median(logs), quantiles(logs, n=6, method="inclusive")
    spread = (sixths[-1] - sixths[0]) / (2 * NORMAL.inv_cdf(5 / 6))
    far = [value for value in logs if value - middle > max(FAR_OUT * spread, math.log(2))]
    ordinary = Profile(latency=math.exp(middle), spread=spread)
    if not far:
        return ordinary
    factor = math.exp(median(far) - middle)
    return replace(ordinary, straggler_fraction=len(far) / len(logs), straggler_factor=factor)

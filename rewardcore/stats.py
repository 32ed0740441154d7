"""What a judge did: counters that only grow, and a snapshot of them for the caller."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Percentiles are over the latest replies, so that a judge that runs for weeks stays small.
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot. `requests` counts attempts on the wire; `failed` counts samples, by the failure's class name."""

    requests: int = 0
    cached: int = 0
    coalesced: int = 0
    retried: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    blocked: float = 0.0


class Counters:
    """The mutable side, written by one judge."""

    def __init__(self) -> None:
        self.requests = 0
        self.cached = 0
        self.coalesced = 0
        self.retried = 0
        self.failed: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self.blocked = 0.0
        self._latencies: deque[float] = deque(maxlen=_REMEMBERED)

    def departed(self) -> None:
        self.requests += 1
        self.in_flight += 1
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight

    def arrived(self, latency: float, usage: Mapping[str, int] | None) -> None:
        self._latencies.append(latency)
        if usage:
            self.prompt_tokens += usage.get("prompt_tokens", 0)
            self.completion_tokens += usage.get("completion_tokens", 0)

    def snapshot(self) -> Stats:
        ordered = sorted(self._latencies.copy())
        return Stats(
            requests=self.requests,
            cached=self.cached,
            coalesced=self.coalesced,
            retried=self.retried,
            failed=dict(self.failed),
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            in_flight=self.in_flight,
            peak_in_flight=self.peak_in_flight,
            p50=percentile(ordered, 0.50),
            p90=percentile(ordered, 0.90),
            p99=percentile(ordered, 0.99),
            blocked=self.blocked,
        )


def percentile(ordered: Sequence[float], fraction: float) -> float | None:
    """The nearest-rank percentile of sorted values: always one that was seen."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]

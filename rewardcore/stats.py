"""What a judge did: counters that only grow, written by whoever drives it, and copied for the caller."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

#: Percentiles are over the latest replies, so that a judge that runs for weeks stays small.
_REMEMBERED = 4096


class PaceChange(NamedTuple):
    """When, by the judge's clock; the state from then on, what it allows, and why."""

    time: float
    state: str
    allowed: str
    reason: str


class PaceState(NamedTuple):
    """How fast the judge asks now, and the last changes that led there."""

    state: str
    allowed: str
    changes: tuple[PaceChange, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.state}: {self.allowed}"]
        now = self.changes[-1].time if self.changes else 0.0
        for change in self.changes:
            lines.append(f"  {change.time - now:+8.1f} s  {change.state}, {change.allowed}: {change.reason}")
        return "\n".join(lines)


@dataclass(slots=True)
class Stats:
    """`requests` counts attempts on the wire; `failed` counts samples, by the failure's class name.

    `p50`, `p90` and `p99` are seconds a reply took, over the latest replies; None before the first.
    `pace` says how fast the judge asks now, and why; None where no endpoint is asked.
    """

    requests: int = 0
    cached: int = 0
    coalesced: int = 0
    retried: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    blocked: float = 0.0
    pace: PaceState | None = field(default=None, repr=False)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED), repr=False)

    @property
    def p50(self) -> float | None:
        return percentile(sorted(self.latencies), 0.50)

    @property
    def p90(self) -> float | None:
        return percentile(sorted(self.latencies), 0.90)

    @property
    def p99(self) -> float | None:
        return percentile(sorted(self.latencies), 0.99)

    def departed(self) -> None:
        self.requests += 1
        self.in_flight += 1
        if self.in_flight > self.peak_in_flight:
            self.peak_in_flight = self.in_flight

    def arrived(self, latency: float, usage: Mapping[str, int] | None) -> None:
        self.latencies.append(latency)
        if usage:
            self.prompt_tokens += usage.get("prompt_tokens", 0)
            self.completion_tokens += usage.get("completion_tokens", 0)

    def count_failure(self, kind: str) -> None:
        self.failed[kind] = self.failed.get(kind, 0) + 1

    def snapshot(self) -> Stats:
        return replace(self, failed=self.failed.copy(), latencies=self.latencies.copy())

    def __add__(self, later: Stats) -> Stats:
        """What two judges did one after the other."""
        total = self.snapshot()
        for counter in fields(Stats):
            if counter.type == "int":
                setattr(total, counter.name, getattr(self, counter.name) + getattr(later, counter.name))
        total.in_flight, total.peak_in_flight = later.in_flight, max(self.peak_in_flight, later.peak_in_flight)
        for kind, count in later.failed.items():
            total.failed[kind] = total.failed.get(kind, 0) + count
        total.latencies.extend(later.latencies)
        total.pace = later.pace or self.pace
        return total

    def __str__(self) -> str:
        seconds = ", ".join(f"{name}={value:.3f}" for name in ("p50", "p90", "p99") if (value := getattr(self, name)))
        return f"{self!r}"[:-1] + (f", {seconds})" if seconds else ")")


def percentile(ordered: Sequence[float], fraction: float) -> float | None:
    """The nearest-rank percentile of sorted values: always one that was seen."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]

"""One mode at a real endpoint beside another, or one batch size: what it took, how its verdicts ended, how far the two
agree. No IO.

Equal work cannot be asked of a server that scores one sample differently twice. So a speed-up is given only beside its
agreement, and not at all where a mode did not get its replies: then it is another work that took this time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bench import records
from bench.records import Direction, Record
from bench.runner import Run
from bench.scenarios import Scenario
from rewardcore.stats import percentile

HEADINGS = ("mode", "seconds", "speed-up", "agreement", "verdicts", "requests", "tokens", "tokens/s", "latency")
LEGEND = (
    "seconds: for all rounds; speed-up: over sync, with the same samples; agreement: of the scores that both gave, the"
    " share that is equal to sync's, and the mean difference; verdicts: how they ended; requests: with retries; tokens:"
    " read + written; tokens/s: written; latency: of one request"
)


@dataclass(frozen=True)
class Agreement:
    """Of the samples that both scored: the share scored alike, and the mean difference."""

    pairs: int
    equal: float
    difference: float

    @classmethod
    def of(cls, ours: list[float | None], theirs: list[float | None]) -> Agreement | None:
        differences = [abs(a - b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        if not differences:
            return None
        equal = sum(difference < 1e-9 for difference in differences)
        return cls(len(differences), equal / len(differences), sum(differences) / len(differences))

    def __str__(self) -> str:
        return f"{self.equal:.0%} of {self.pairs} equal, ±{self.difference:.2f}"


@dataclass(frozen=True)
class Measured:
    """One mode with one size, over the rounds that every mode went through."""

    scenario: Scenario
    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        return sum(run.seconds or 0.0 for run in self.runs)

    @property
    def statuses(self) -> Counter[str]:
        return sum((Counter(run.statuses) for run in self.runs), Counter())

    @property
    def has_every_reply(self) -> bool:
        return not self.statuses.keys() & {"failed", "timeout"}

    @property
    def scores(self) -> list[float | None]:
        return [score for run in self.runs for score in run.scores]

    @property
    def requests(self) -> int:
        return sum(run.requests for run in self.runs)

    @property
    def tokens(self) -> tuple[int, int]:
        return sum(run.prompt_tokens for run in self.runs), sum(run.completion_tokens for run in self.runs)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens[1] / self.seconds if self.seconds else 0.0

    @property
    def latency(self) -> tuple[str, float] | None:
        """As far out as n says anything: the 99th percentile of 1024, the 90th from 100 on, else the median."""
        name, fraction = (
            ("p99", 0.99) if self.scenario.n >= 1024 else ("p90", 0.9) if self.scenario.n >= 100 else ("p50", 0.5)
        )
        seconds = percentile(sorted(each for run in self.runs for each in run.latencies if each), fraction)
        return None if seconds is None else (name, seconds)

    def agreement(self, baseline: Measured) -> Agreement | None:
        return None if baseline is self else Agreement.of(self.scores, baseline.scores)

    def speed_up(self, baseline: Measured) -> float | None:
        """None for the baseline, and where not both got every reply: then it is another work that took this time."""
        is_known = baseline is not self and self.has_every_reply and baseline.has_every_reply and self.seconds
        return baseline.seconds / self.seconds if is_known else None

    def row(self, baseline: Measured) -> tuple[str, ...]:
        speed_up, agreement, latency = self.speed_up(baseline), self.agreement(baseline), self.latency
        verdicts = ", ".join(f"{count} {status}" for status, count in self.statuses.most_common())
        return (
            self.scenario.mode,
            f"{self.seconds:.3f}",
            f"{speed_up:.1f}×" if speed_up is not None and agreement is not None else "–",
            "–" if agreement is None else str(agreement),
            verdicts,
            str(self.requests),
            "{:,} + {:,}".format(*self.tokens),
            f"{self.tokens_per_second:.1f}",
            "–" if latency is None else f"{latency[0]} {latency[1]:.2f} s",
        )

    def records(self, baseline: Measured) -> list[Record]:
        latency = self.latency
        figures: list[tuple[str, float, str, Direction]] = [
            ("makespan", self.seconds / len(self.runs), "s", "lower"),
            ("requests", self.requests, "requests", "lower"),
            *((f"verdicts {status}", count, "samples", "equal") for status, count in self.statuses.items()),
            ("prompt tokens", self.tokens[0], "tokens", "lower"),
            ("completion tokens", self.tokens[1], "tokens", "lower"),
            ("tokens a second", self.tokens_per_second, "1/s", "higher"),
        ]
        if latency is not None:
            figures.append((f"latency {latency[0]}", latency[1], "s", "lower"))
        return [records.record(self.scenario, *each, len(self.runs)) for each in figures] + self.beside(baseline)

    def beside(self, baseline: Measured) -> list[Record]:
        """How far it agrees with the baseline and, only then, how much faster it is."""
        speed_up, agreement = self.speed_up(baseline), self.agreement(baseline)
        if agreement is None:
            return []
        name = "batch size 1" if self.scenario.mode == "self" else "sync"
        figures: list[tuple[str, float, str, Direction]] = [
            (f"scores equal to {name}'s", agreement.equal, "of those both gave", "higher"),
            (f"mean difference to {name}'s scores", agreement.difference, "", "lower"),
        ]
        if speed_up is not None:
            figures.append((f"speed-up over {name}", speed_up, "×", "higher"))
        return [records.record(self.scenario, *each, len(self.runs)) for each in figures]

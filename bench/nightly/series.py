"""A night's records as series: the value, or the rounds, of each metric of each scenario. Pure, and decides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from bench.gate.findings import Value
from bench.records import Direction, Record

#: What has no rounds and is compared all the same: what an engine sets aside.
ALONE = ("bytes", "blocks")
_ROUND = re.compile(r"(.+), round (\d+)")


@dataclass
class Series:
    """One metric of one scenario in one night: its value, and its rounds where it has some."""

    unit: str
    direction: Direction
    exact: bool
    version: int
    value: Value | None = None
    rounds: dict[int, float] = field(default_factory=dict)

    @property
    def figures(self) -> list[float]:
        """Its rounds in order; its value alone, where it has none."""
        if self.rounds:
            return [self.rounds[number] for number in sorted(self.rounds)]
        return [] if self.value is None or isinstance(self.value, str) else [self.value]

    @property
    def middle(self) -> Value | None:
        return median(self.rounds.values()) if self.rounds else self.value

    @property
    def is_compared(self) -> bool:
        if self.exact:
            return True
        return self.direction != "equal" and (bool(self.rounds) or self.unit in ALONE)


def series_of(records: Iterable[Record]) -> dict[str, dict[str, Series]]:
    """scenario → metric → series. "METRIC, round 3" is a round of METRIC."""
    found: dict[str, dict[str, Series]] = {}
    for record in records:
        of_round = _ROUND.fullmatch(record.metric)
        metric = of_round[1] if of_round else record.metric
        series = found.setdefault(record.scenario, {}).setdefault(
            metric, Series(record.unit, record.direction, record.exact, record.version)
        )
        if of_round:
            series.rounds[int(of_round[2])] = float(record.value)
        else:
            series.value = record.value
    return found

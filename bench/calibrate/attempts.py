"""The words of a calibration: an attempt, and the load that it met."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

#: Of fewer replies at a steady load, or accepted requests, nothing can be said.
LEAST = 8
#: A reply that is heard within this share of a reply's time was on its way back already: it is no load any more.
_ON_ITS_WAY = 0.03

Outcome = Literal["replied", "refused", "failed"]


class Attempt(NamedTuple):
    """One request, as its client saw it: the `number`th of a stage that keeps `at_once` in flight."""

    stage: int
    at_once: int
    number: int
    sent: float
    seconds: float
    outcome: Outcome
    tokens: int | None = None
    is_short: bool = False  # asked for fewer tokens than the workload's replies may have
    is_cut: bool = False  # it ended at the limit of tokens
    retry_after: float | None = None
    error: str = ""

    @property
    def ended(self) -> float:
        return self.sent + self.seconds

    @property
    def is_steady(self) -> bool:
        """Not of the first wave, which meets connections to open and a load that is still rising."""
        return self.number >= self.at_once


def in_flight(attempts: Sequence[Attempt]) -> dict[Attempt, int]:
    """How many the endpoint had when each attempt came, itself among them; those refused were never with it."""
    accepted = [attempt for attempt in attempts if attempt.outcome != "refused"]
    slack = _ON_ITS_WAY * median([attempt.seconds for attempt in accepted] or [0.0])
    sent = sorted(attempt.sent for attempt in accepted)
    ended = sorted(attempt.ended for attempt in accepted)
    return {
        attempt: 1 + max(0, bisect.bisect_left(sent, attempt.sent) - bisect.bisect_right(ended, attempt.sent + slack))
        for attempt in attempts
    }

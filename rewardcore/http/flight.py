"""A flight: a request on its way, with everyone who waits for its reply. What becomes of it is the engine's to say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..calls import Call
from ..failures import Failure
from ..sample import Sample
from .request import Request


@dataclass(slots=True, eq=False)
class Flight:
    """A request and everyone who waits for its reply. The first to get a verdict pays: `unpaid` counts attempts."""

    request: Request
    seats: dict[tuple[Call, int], Sample | None]  # the sample, where the rubric's parse wants it
    attempts: int = 0
    unpaid: int = 0
    stalls: int = 0
    doubted_since: float | None = None  # when it was sent, if it stalled then and nobody else got through either
    faults: tuple[Failure, ...] = ()  # those of its failures that are its own
    failure: Failure | None = None
    failed: int = 0  # the departure that failed last, or else its first since it stalled
    sent_at: float = 0.0
    latency: float = 0.0
    number: int = 0
    in_the_air: bool = False
    given_up: bool = False
    carrier: Any = None  # the driver's own

    @property
    def deadline(self) -> float:
        """When the last of its seats gives up."""
        return max((call.deadline for call, _ in self.seats), default=-math.inf)

    def again(self) -> Flight:
        """The same request and seats, to be sent anew; nobody sits on this one any more."""
        seats, self.seats = self.seats, {}
        unpaid, self.unpaid = self.unpaid, 0
        stalls, doubted_since = self.stalls + 1, self.doubted_since
        other = Flight(self.request, seats, self.attempts, unpaid, stalls, doubted_since, self.faults, self.failure)
        for call, index in seats:
            call.waiting[index] = other
        return other


class GiveUp(NamedTuple):
    """The driver shall end this flight, and say when it is gone."""

    flight: Flight

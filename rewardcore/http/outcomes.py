"""What an attempt's outcome says: to the pace, what the endpoint bears; of its sample, whether to ask again, and when;
to people, what is wrong. Pure logic: the engine asks here, and does what follows.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from ..failures import BrokenReply, ConnectionFailed, Disconnected, Failure, NeverAnswered, Overloaded, WorkerDied
from ..notices import Trouble, say
from ..reply import Reply
from .flight import Flight
from .pace import Pace, Patience
from .retry import Blame, backoff


@dataclass(slots=True)
class Outcomes:
    pace: Pace
    patience: Patience
    startup_timeout: float
    mask: Callable[[str], str]
    trouble: Trouble
    blame: Blame
    uniform: Callable[[], float]
    _reached: bool = False  # it has answered, whatever it said
    _replied: bool = False
    _answered_at: float = -math.inf
    _dark_since: float | None = None  # since when it is asked, and has never answered

    def begin(self) -> None:
        """A new run: who was not there may be there now."""
        self._dark_since = None

    def heard(
        self, flight: Flight, failure: Failure | None, reply: Reply | None, now: float, others: int, presses: bool
    ) -> None:
        """`others` are in the air, and `presses` says that more wait.

        What the endpoint bears is learnt from everything it says, and from what it does not say.
        """
        if reply is not None:
            self.patience.heard(flight.latency)
            self._replied = True
        if isinstance(failure, WorkerDied) or type(failure) is Failure:
            return  # which is our own machine's, and the endpoint may never have been asked
        self._reached = self._reached or not isinstance(failure, ConnectionFailed)
        if failure is None or not failure.retryable:
            usage = reply.usage if reply is not None else None
            self.pace.answered(
                flight.number,
                now,
                others,
                flight.latency if reply is not None else None,
                usage.get("completion_tokens") if usage else None,
                reply.quota if reply is not None else None,
            )
            self.blame.answered()
            self._answered_at = now
        elif isinstance(failure, Overloaded):
            asked = failure.retry_after  # one that is past the deadline fails this sample, and holds up no other
            fits = asked is not None and now + asked < flight.deadline
            self.pace.refused(flight.number, now, others, presses, asked if fits else None, failure.quota)
        elif isinstance(failure, BrokenReply):
            self.pace.answered(flight.number, now, others)
        elif not _is_stale(flight, failure):
            self.pace.failed(flight.number, now, others)

    def ends_all(self, failure: Failure) -> bool:
        """Whether every further request would share it."""
        return failure.opens_breaker or (failure.opens_breaker_at_first and not self._replied)

    def at_the_start(self, flight: Flight, failure: Failure, now: float) -> Failure:
        """A server that has never answered may still be starting; after so long it is taken for not there."""
        if self._reached or not isinstance(failure, ConnectionFailed):
            return failure
        if self._dark_since is None:
            self._dark_since = now - flight.latency
        seconds = now - self._dark_since
        if seconds < self.startup_timeout or not failure.retryable:
            return failure
        return NeverAnswered(f"{failure} (never an answer in {seconds:.0f} s; startup_timeout says how long to ask)")

    def retry_at(self, flight: Flight, failure: Failure, now: float, others: int) -> float | None:
        """When to try again; None when this failure was the last."""
        before, flight.failure = flight.failure, failure
        if not flight.seats:
            return None
        if _is_stale(flight, failure):
            return now
        # Whoever failed twice, and others got through in between, failed by itself; unless the first time there was
        # no room: then others that got through say nothing about an outage that came after them.
        was_refused = isinstance(before, Overloaded) and not isinstance(failure, Overloaded)
        since = flight.number if was_refused else flight.failed
        got_through = self.pace.last_good > since
        # Known for faults of its own, and it cannot be what else is in the air that overloads the endpoint.
        is_known = bool(flight.faults) and not (isinstance(failure, Overloaded) and others)
        if self.blame.falls_on(flight, flight.number, failure, since, got_through, is_known):
            flight.faults += (failure,)
            if self.blame.is_final(flight.faults):
                return None
        flight.failed = flight.number
        if (asked := failure.retry_after) is not None:
            if now + asked >= flight.deadline:
                past = f"asked to wait {asked:g} s, which is past the deadline"
                flight.failure = type(failure)(f"{failure} ({past})")
                return None
            return now + asked + 0.1 * backoff(flight.attempts, self.uniform)
        # While nothing gets through, the pause is the endpoint's, not the sample's.
        return now if self.pace.is_dry else now + backoff(flight.attempts, self.uniform)

    def is_last_stall(self, flight: Flight, failure: Failure) -> bool:
        """Whether it has stalled by itself for too often.

        By itself means while others got through. One in whose time nobody did may have been the outage's: if others get
        through before the same request stalls again, both were its own. So it is also where there is one place.
        """
        since = flight.sent_at if flight.doubted_since is None else flight.doubted_since
        if self.blame.of_stall(self._answered_at > since, bool(flight.faults)):
            flight.faults += (failure,) * (1 if flight.doubted_since is None else 2)
            flight.doubted_since = None
        else:
            flight.doubted_since = flight.sent_at
        return self.blame.is_final(flight.faults)

    def tell(self, failure: Failure, now: float) -> None:
        """A line for people, where one is due, on what failed and is asked again."""
        if (told := self.trouble.told(failure, now, self.pace.window)) is not None:
            doing = f"asking again, {self.pace.told.allowed}"
            if not self._reached and self.startup_timeout < math.inf:
                doing = f"it has never answered, and is asked for {self.startup_timeout:g} s (startup_timeout)"
            say(logging.WARNING, "%s", self.mask(f"{told}; {doing}"))


def _is_stale(flight: Flight, failure: Failure) -> bool:
    """Most likely a keep-alive connection that the server had already closed: tried again free of charge."""
    return isinstance(failure, Disconnected) and flight.attempts == 1

"""Everything the HTTP judges decide, in one place and without IO: a mode only drives `take`, send, `settle`.

A call brings samples. `take` turns the next ones into flights (requests to put on the wire), unless the cache or an
identical flight answers them; flights that failed and may be tried again are parked until their time.
`settle` takes an attempt's answer and either parks the flight or hands its verdict to every seat on it.
Calls that pass their deadline are left, not cancelled: what is still in the air may land in the cache.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .cache import Cache
from .failures import DeadlinePassed, Disconnected, Failure, JudgeClosed, RateLimited
from .limit import Limit
from .reply import Answer, grade
from .request import Request, RequestBuilder
from .retry import Breaker, RetryBudget, may_retry, retry_delay
from .rubrics import Rubric
from .sample import Sample
from .stats import Counters
from .verdict import Verdict

log = logging.getLogger("rewardcore")

#: How many samples are looked at in a row: enough to keep the caches warm, few enough to let an event loop breathe.
_AHEAD = 32


class Stream:
    """What the calls of one stream share: how often each request has come, and that they are one run."""

    def __init__(self) -> None:
        self.repeats: Counter[bytes] = Counter()
        self.has_begun = False


class Call:
    """One batch on its way: its samples, its deadline, and who is told of each verdict (`index, verdict`).

    `finished` is told once, when the last verdict is in. A call that is part of a stream is told as verdicts come.
    """

    def __init__(
        self,
        samples: Iterable[tuple[int, Sample]],
        deadline: float,
        tell: Callable[[int, Verdict], None],
        finished: Callable[[], None],
        stream: Stream | None = None,
    ) -> None:
        self.stream = stream
        self.fresh = deque(samples)
        self.deadline = deadline
        self.waiting = {index for index, _ in self.fresh}
        self.repeats: Counter[bytes] = Counter() if stream is None else stream.repeats
        self.cancel_timer: Callable[[], object] | None = None
        self._tell = tell
        self._finished = finished

    def settle(self, index: int, verdict: Verdict) -> None:
        """The first verdict for a sample counts; the last sample's ends the call."""
        if index in self.waiting:
            self.waiting.remove(index)
            self._tell(index, verdict)
            if not self.waiting:
                if self.cancel_timer is not None:
                    self.cancel_timer()
                self._finished()


@dataclass(slots=True, eq=False)
class Flight:
    """A request and everyone who waits for its reply. The first to get a verdict pays: `unpaid` counts attempts."""

    request: Request
    seats: list[tuple[Call, int]]
    attempts: int = 0
    unpaid: int = 0
    failures: tuple[Failure, ...] = ()
    failure: Failure | None = None
    sent_at: float = 0.0
    number: int = 0

    @property
    def is_wanted(self) -> bool:
        call, index = self.seats[0]
        return index in call.waiting or any(index in call.waiting for call, index in self.seats)

    @property
    def deadline(self) -> float:
        """When the last of its seats gives up; a seat whose call is over no longer counts."""
        return max((call.deadline for call, index in self.seats if index in call.waiting), default=-math.inf)


@dataclass(slots=True)
class Engine:
    builder: RequestBuilder
    rubric: Rubric
    cache: Cache | None
    limit: Limit
    budget: RetryBudget
    counters: Counters
    breaker: Breaker = field(default_factory=Breaker)
    uniform: Callable[[], float] = random.random
    _calls: deque[Call] = field(default_factory=deque)
    _flights: dict[bytes, Flight] = field(default_factory=dict)
    _prepared: deque[Flight] = field(default_factory=deque)
    _parked: list[tuple[float, int, Flight]] = field(default_factory=list)
    _ordinal: itertools.count[int] = field(default_factory=itertools.count)
    _quiet_until: float = -math.inf
    _independent: bool = field(init=False)

    def __post_init__(self) -> None:
        self._independent = bool(getattr(self.rubric, "independent", False))

    def open(self, call: Call) -> None:
        goes_on = call.stream is not None and call.stream.has_begun
        if self.breaker.failure is not None and not goes_on and not self._waiting_calls():
            self.breaker.close()
        if call.stream is not None:
            call.stream.has_begun = True
        self._calls.append(call)

    def take(self, now: float) -> Flight | float | None:
        """The next flight to send; or the seconds until there may be one; or None: nothing is left to send."""
        for call in self._calls:
            if call.deadline <= now:
                self._expire_overdue(now)
                break
        if now < self._quiet_until and self.breaker.failure is None:
            return self._quiet_until - now if self._calls or self._parked or self._prepared else None
        flight = self._next_parked(now) if self._parked else None
        if flight is None:
            flight = self._next_fresh(now)
        if flight is not None:
            flight.attempts += 1
            flight.unpaid += 1
            flight.sent_at = now
            flight.number = self.limit.departed()
            self.counters.departed()
            return flight
        if any(call.fresh for call in self._calls):
            return 0.0
        return max(self._parked[0][0] - now, self.budget.wait(now)) if self._parked else None

    def settle(self, flight: Flight, answer: Answer, now: float) -> None:
        """An attempt is over; `answer` is its outcome."""
        self.counters.in_flight -= 1
        failure, reply = answer.failure, answer.said
        if reply is not None:
            self.counters.arrived(now - flight.sent_at, reply.usage)
            tokens = reply.usage.get("completion_tokens") if reply.usage else None
            self.limit.succeeded(flight.number, now - flight.sent_at, tokens, reply.quota)
        if answer.reply is not None and self.cache is not None:
            self.cache.put(flight.request.key, answer.reply, self.builder.material(flight.request))
        if failure is None or not failure.retryable:
            self.budget.outcome(True)
            if failure is not None and failure.opens_breaker and self.breaker.open(failure):
                log.error("%s; the rest of this run is not sent", failure)
        else:
            if isinstance(failure, RateLimited):
                self.limit.rate_limited(flight.number)
            retry_at = self._retry_at(flight, failure, now)
            if retry_at is not None:
                if isinstance(failure, RateLimited) and not self.counters.in_flight:
                    self._quiet_until = retry_at  # the endpoint takes nothing at all: no sample may go out before
                heapq.heappush(self._parked, (retry_at, next(self._ordinal), flight))
                return
            answer = Answer(failure=flight.failure)
        self._land(flight, answer, now)

    def expire(self, call: Call) -> None:
        """The call's deadline has come: whatever is not judged is `timeout`."""
        late = "not judged before the deadline"
        flights = self._flights_of(call)
        for index in sorted(call.waiting):
            flight = flights.get(index)
            before = f"; the last attempt: {flight.failure}" if flight and flight.failure else ""
            self._tell(call, index, Answer(failure=DeadlinePassed(late + before)), flight)
        self._leave(call)

    def _expire_overdue(self, now: float) -> None:
        for call in [call for call in self._calls if call.deadline <= now]:
            self.expire(call)

    def abandon(self, call: Call) -> None:
        """Nobody waits for this call any more; nobody is told."""
        call.waiting.clear()
        self._leave(call)

    def close(self) -> None:
        """Every sample still waiting gets its verdict now: the judge was closed."""
        closed = Answer(failure=JudgeClosed("the judge was closed before this sample was judged"))
        for call in self._waiting_calls():
            flights = self._flights_of(call)
            for index in sorted(call.waiting):
                self._tell(call, index, closed, flights.get(index))
        self._calls.clear()
        self._flights.clear()
        self._prepared.clear()
        self._parked.clear()

    def _next_parked(self, now: float) -> Flight | None:
        while self._parked and (self._parked[0][0] <= now or self.breaker.failure is not None):
            if self.breaker.failure is None and self._parked[0][2].deadline > now:
                if self.budget.wait(now) > 0.0:
                    return None
                self.budget.spend()
                self.counters.retried += 1
                return heapq.heappop(self._parked)[2]
            flight = heapq.heappop(self._parked)[2]
            self._land(flight, Answer(failure=self.breaker.failure or flight.failure), now)
        return None

    def _next_fresh(self, now: float) -> Flight | None:
        """A flight for a sample that was never sent; None when those looked at needed none, or there are none."""
        if not self._prepared:
            self._prepare()
        while self._prepared:
            flight = self._prepared.popleft()
            if self.breaker.failure is not None:
                self._land(flight, Answer(failure=self.breaker.failure), now)
            elif flight.is_wanted:
                self.budget.sent()
                return flight
            else:
                del self._flights[flight.request.key]
        return None

    def _prepare(self) -> None:
        """Look at the next few samples at once: building requests in a row costs half of building them one by one."""
        calls = self._calls
        for _ in range(_AHEAD):
            while calls and not calls[0].fresh:
                calls.popleft()
            if not calls:
                return
            call = calls[0]
            calls.rotate(-1)  # calls take turns
            if (flight := self._admit(call, *call.fresh.popleft())) is not None:
                self._prepared.append(flight)

    def _admit(self, call: Call, index: int, sample: Sample) -> Flight | None:
        """A flight for the sample; None when the cache or another flight serves it, or it cannot be sent."""
        try:
            request = self.builder.build(sample)
        except Failure as failure:
            self._tell(call, index, Answer(failure=failure))
            return None
        if self._independent:
            repeat = call.repeats[request.key]
            call.repeats[request.key] += 1
            request = self.builder.repeated(request, repeat)
        if (flight := self._flights.get(request.key)) is not None:
            self.counters.coalesced += 1
            flight.seats.append((call, index))
            return None
        if self.cache is not None and (reply := self.cache.get(request.key)) is not None:
            self.counters.cached += 1
            self._tell(call, index, grade(self.rubric, reply), cached=True)
            return None
        flight = self._flights[request.key] = Flight(request, [(call, index)])
        return flight

    def _retry_at(self, flight: Flight, failure: Failure, now: float) -> float | None:
        """When to try again; None when this failure was the last."""
        flight.failure = failure
        if isinstance(failure, Disconnected) and flight.attempts == 1:
            return now  # most likely a keep-alive connection that the server had already closed: free of charge
        self.budget.outcome(False)
        flight.failures += (failure,)
        if not may_retry(flight.failures):
            return None
        retry_at = now + retry_delay(failure, len(flight.failures), self.uniform)
        if retry_at < flight.deadline:
            return retry_at
        if failure.retry_after is not None and now + failure.retry_after >= flight.deadline:
            past = f"asked to wait {failure.retry_after:g} s, which is past the deadline"
            flight.failure = type(failure)(f"{failure} ({past})")
        return None

    def _land(self, flight: Flight, answer: Answer, now: float) -> None:
        self._flights.pop(flight.request.key, None)
        latency = now - flight.sent_at
        for call, index in flight.seats:
            self._tell(call, index, answer, flight, latency=latency)

    def _tell(
        self,
        call: Call,
        index: int,
        answer: Answer,
        flight: Flight | None = None,
        *,
        cached: bool = False,
        latency: float = 0.0,
    ) -> None:
        if index not in call.waiting:
            return
        attempts = 0
        if flight is not None:
            attempts, flight.unpaid = flight.unpaid, 0
        if answer.failure is not None:
            self.counters.failed[answer.failure.kind] += 1
        call.settle(index, answer.verdict(cached, attempts, latency))

    def _waiting_calls(self) -> list[Call]:
        seated = (call for flight in self._flights.values() for call, _ in flight.seats)
        return [call for call in dict.fromkeys(itertools.chain(self._calls, seated)) if call.waiting]

    def _flights_of(self, call: Call) -> dict[int, Flight]:
        return {index: flight for flight in self._flights.values() for seated, index in flight.seats if seated is call}

    def _leave(self, call: Call) -> None:
        call.fresh.clear()
        with contextlib.suppress(ValueError):
            self._calls.remove(call)

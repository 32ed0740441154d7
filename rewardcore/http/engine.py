"""Everything the HTTP judges decide, in one place and without IO: a driver only does take, send, settle, gone.

A call brings samples. `take` makes flights of them (requests to put on the wire), unless the cache or an identical
flight answers them; it also says which flight to give up. `settle` takes an attempt's answer, and either parks the
flight for another or hands its verdict to every seat on it. How fast requests leave is `pace.py`'s to say, and what an
outcome means `outcomes.py`'s.

The engine owns a request's whole life. While anybody sits on it, it is wanted. When the last seat is left it is late:
nobody waits, but its reply may still be shared or cached, for a while, and as long as nobody needs its place. When
it is given up it is forgotten first and cancelled then, so that nobody can take a seat on a dying flight; its
permit is free when the driver says that it is gone.

It is also the last line of defence. An exception that nobody expected fails the samples that it belongs to, with its
reason: a sample that is looked at, the seats of a flight that is settled, else every open call.
"""

from __future__ import annotations

import logging
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from ..calls import Call
from ..failures import DeadlinePassed, Failure, JudgeClosed, Stalled, described
from ..notices import Once, Trouble, log, say
from ..reply import Answer, Reply
from ..rubrics import Rubric
from ..rubrics.rubric import LoopTime, grade, reads_sample
from ..sample import Sample
from ..stats import Stats
from ..words import cut
from .cache import Cache
from .flight import Flight, GiveUp
from .outcomes import Outcomes
from .pace import Pace, Patience
from .request import Request, RequestBuilder
from .retry import Blame
from .timetable import Timetable

#: How long a request may outlive the last call that wanted it.
LATE_SECONDS = 30.0
#: How often a busy engine looks for requests that have stalled; an idle one is woken.
LOOK_SECONDS = 0.25
#: A request of which nobody knows how long it may take steps aside for others after so many seconds at least.
_STEPS_ASIDE = 1.0
#: How many samples are looked at in a row: enough to keep the caches warm, few enough to let an event loop breathe.
_AHEAD = 32


@dataclass(slots=True)
class Engine:
    builder: RequestBuilder
    rubric: Rubric
    cache: Cache | None
    pace: Pace
    patience: Patience = field(default_factory=Patience)
    startup_timeout: float = math.inf
    mask: Callable[[str], str] = str
    trouble: Trouble = field(default_factory=Trouble)
    stats: Stats = field(default_factory=Stats)
    blame: Blame = field(default_factory=Blame)
    uniform: Callable[[], float] = random.random
    _calls: OrderedDict[Call, None] = field(default_factory=OrderedDict)  # with samples that were not looked at yet
    _open: dict[Call, None] = field(default_factory=dict)
    _flights: dict[bytes, Flight] = field(default_factory=dict)  # whom a sample may join
    _ready: deque[Flight] = field(default_factory=deque)  # never sent
    _again: deque[Flight] = field(default_factory=deque)  # sent before, and due
    _stalled: deque[Flight] = field(default_factory=deque)  # sent before, without an answer
    _parked: Timetable[Flight] = field(default_factory=lambda: Timetable(attrgetter("seats")))
    _deadlines: Timetable[Call] = field(default_factory=lambda: Timetable(attrgetter("waiting")))
    _late: dict[Flight, float] = field(default_factory=dict)  # until when, the earliest first
    _air: OrderedDict[Flight, None] = field(default_factory=OrderedDict)  # wanted and sent, the earliest first
    look_by: float = math.inf  # until when those in the air need not be looked at
    _look_at: float = -math.inf  # when to look for those that have stalled
    _stalling: int = 0  # how many in flight have stalled before
    _dying: int = 0
    _once: Once = field(default_factory=Once)
    reads_sample: bool = field(init=False)  # such a rubric reads replies here, for each sample, not on their way
    loop_time: LoopTime = field(init=False)
    _outcomes: Outcomes = field(init=False)

    def __post_init__(self) -> None:
        of_the_endpoint = self.pace, self.patience, self.startup_timeout, self.mask
        self._outcomes = Outcomes(*of_the_endpoint, self.trouble, self.blame, self.uniform)
        self.loop_time = LoopTime(self.rubric)
        self.reads_sample = reads_sample(self.rubric)

    def open(self, call: Call) -> None:
        run = call.run
        if not self._open and (run is None or not run.has_begun):
            self._outcomes.begin()
        if run is not None:
            run.has_begun = True
            call.ended_by = run.ended_by
        if call.waiting:
            self._open[call] = None
            self._calls[call] = None
            self._deadlines.add(call.deadline, call)

    @property
    def is_full(self) -> bool:
        """Every place is taken by a request that somebody waits for: there is nothing to take before one is settled."""
        return self.stats.in_flight >= self.pace.window and not self._late

    def take(self, now: float) -> Flight | GiveUp | float:
        """The next flight to send, or one to give up; or the seconds until there may be one, infinity for never."""
        try:
            return self._take(now)
        except Exception as error:
            self.rescue(error, list(self._open), now)
            return LOOK_SECONDS if self.stats.in_flight else math.inf

    def rescue(self, error: BaseException, calls: Iterable[Call], now: float) -> None:
        """What nobody expected has happened, and nobody waits in vain for it."""
        lost = self._lost(error)
        for call in calls:
            self._fail_rest(call, lambda _: lost, now)

    def _take(self, now: float) -> Flight | GiveUp | float:
        while self._deadlines.next() <= now:
            self._expire(self._deadlines.pop(), now)
        if self._late:
            oldest = next(iter(self._late))
            if self._late[oldest] <= now:
                return self._give_up(oldest)
        if now >= self._look_at:
            when, stalled = self._next_stall()
            self._look_at = self.look_by = now + LOOK_SECONDS
            alone = self.patience.seconds(0, 0)
            if self.pace.window == 1 and alone < math.inf:  # nobody overtakes anybody: what is known stays so
                self.look_by = max(self._look_at, min(when, now + alone))
            if stalled is not None and when <= now:
                return self._ask_again(stalled, now)
        ready = self._due(now)
        if not ready:
            return 0.0 if self._calls else self._until_something(now, self._parked.next())
        wait = self.pace.wait(now, self.stats.in_flight)
        if wait == 0.0:
            return self._depart(ready.popleft(), now)
        if self._calls and not self._ready:
            return 0.0  # the cache may answer the next ones meanwhile
        if wait < math.inf or not self._late:
            return self._until_something(now, now + wait)
        queues = self._again, self._stalled, self._ready
        wanted = sum(1 for queue in queues for flight in queue if flight.seats)
        if self.pace.window - (self.stats.in_flight - self._dying) < wanted:
            return self._give_up(next(iter(self._late)))
        return self._until_something(now, self._parked.next())

    def hold(self, flight: Flight) -> None:
        """It still stands in this machine: until it is `sent`, no time of the endpoint's passes."""
        self._air.pop(flight, None)

    def sent(self, flight: Flight, now: float) -> None:
        flight.sent_at = now
        if flight.seats and not flight.given_up:
            self._air[flight] = None

    def settle(self, flight: Flight, answer: Answer, now: float) -> None:
        """An attempt is over; `answer` is its outcome."""
        self._landed(flight)
        try:
            self._settle(flight, answer, now)
        except Exception as error:
            self._land(flight, self._lost(error))

    def _settle(self, flight: Flight, answer: Answer, now: float) -> None:
        flight.latency = latency = now - flight.sent_at
        failure, reply = answer.failure, answer.reply or answer.said
        if log.isEnabledFor(logging.DEBUG):
            said = "a reply" if failure is None else self.mask(cut(f"{failure.kind}: {failure}"))
            key = flight.request.key.hex()[:16]
            say(logging.DEBUG, "%s, attempt %d, %.3f s: %s", key, flight.attempts, latency, said)
        if reply is not None:
            self.stats.arrived(latency, reply.usage)
        if answer.reply is not None:
            failure = None  # whatever a rubric says of it, the endpoint has answered
        outcomes, others = self._outcomes, self.stats.in_flight
        outcomes.heard(flight, failure, reply, now, others, failure is not None and self._presses)
        if answer.reply is not None and self.cache is not None:
            self.cache.put(flight.request.key, answer.reply, self.builder.material(flight.request))
        if failure is not None:
            failure = outcomes.at_the_start(flight, failure, now)
            if outcomes.ends_all(failure):
                return self._break(flight, failure)
            if failure.retryable:
                self._let_down(flight)
                retry_at = outcomes.retry_at(flight, failure, now, others)
                if retry_at is not None:
                    outcomes.tell(failure, now)
                    self._parked.add(retry_at, flight)
                    return
                answer = Answer(failure=flight.failure)
            else:
                answer = Answer(failure=failure)
        self._land(flight, answer)

    def _break(self, flight: Flight, failure: Failure) -> None:
        """Every further request would share it: the calls that are open now send no more. A later call tries again."""
        if any(call.ended_by is None for call in self._open):
            say(logging.ERROR, "%s; the rest of this run is not sent", self.mask(cut(str(failure))))
        for call in self._open:
            call.ended_by = call.ended_by or failure
            if call.run is not None:
                call.run.ended_by = call.ended_by
        self._outcomes.begin()
        self._land(flight, Answer(failure=failure))
        while self._parked.next() < math.inf:
            self._again.append(self._parked.pop())
        for queue in (self._again, self._stalled, self._ready):
            while queue:
                self._land(queue.popleft(), Answer(failure=failure))

    def _let_down(self, flight: Flight) -> None:
        """It is not sent again for a call that is ended, and may be for another that has joined it since."""
        for call, index in list(flight.seats):
            if call.ended_by is not None:
                del flight.seats[call, index]
                self._tell(call, index, Answer(failure=call.ended_by), flight)

    def gone(self, flight: Flight) -> None:
        """An attempt that was given up has ended, without an answer."""
        self._landed(flight)
        self._forget(flight)

    def abandon(self, call: Call, now: float) -> None:
        """Nobody waits for this call any more; nobody is told."""
        if call.waiting:
            for index, flight in call.waiting.items():
                self._leave(flight, call, index, now)
            call.let_go()
            self._ended(call)

    def close(self, now: float) -> None:
        """Whatever waits is told so; what is in the air is forgotten, and its driver's to end."""
        closed = Answer(failure=JudgeClosed("the judge was closed before this sample was judged"))
        for call in list(self._open):
            self._fail_rest(call, lambda _: closed, now)
        for flight in list(self._late):
            self._give_up(flight)
        self._parked.clear()
        self._ready.clear()
        self._again.clear()
        self._stalled.clear()

    def _due(self, now: float) -> deque[Flight]:
        """Whose first flight goes next: a retry that is due before a sample that was never sent, if the pace agrees.

        Those that have stalled may hold half of the places while others wait: where there is one place, none.
        """
        again, stalled, ready = self._again, self._stalled, self._ready
        while self._parked.next() <= now:
            again.append(self._parked.pop())
        self._clear(again)
        self._clear(stalled)
        if not ready:
            self._prepare()
        self._clear(ready)
        may_retry = self.pace.may_retry
        if stalled:
            others_wait = again or ready or self._calls
            if not others_wait or (may_retry and 2 * (self._stalling + 1) <= self.pace.window):
                return stalled
        return again if again and (not ready or may_retry) else ready

    def _clear(self, queue: deque[Flight]) -> None:
        """Nobody waits for the first ones any more."""
        while queue and not queue[0].seats:
            self._forget(queue.popleft())

    def _next_stall(self) -> tuple[float, Flight | None]:
        """Who will have been in the air for too long first, and when: those that stalled before have longer.

        Before a few have been heard nothing is known. Then, if the window is full and others wait, and none has left
        for half of the time there is, the first steps aside for one of them: the only one, where there is one place.
        An endpoint that is only slow loses one request by it, not all that are in the air.
        """
        first: tuple[float, Flight | None] = math.inf, None
        for flight in self._air:
            overtaken_by = self.pace.last_good - flight.number - self.stats.in_flight
            when = flight.sent_at + self.patience.seconds(overtaken_by, flight.stalls)
            if when < first[0]:
                first = when, flight
            if not flight.stalls:
                break
        if first[1] is None and self._air and self._presses and self.stats.in_flight >= self.pace.window:
            oldest, newest = next(iter(self._air)), next(reversed(self._air))
            return newest.sent_at + max(_STEPS_ASIDE, 0.5 * (oldest.deadline - newest.sent_at)), oldest
        return first

    def _ask_again(self, flight: Flight, now: float) -> GiveUp:
        seconds = now - flight.sent_at
        flight.failure = failure = Stalled(f"no reply from {self.builder.host} within {seconds:.1f} s")
        flight.latency = seconds
        self.pace.failed(flight.number, now, self.stats.in_flight - 1)
        self._let_down(flight)
        if self._outcomes.is_last_stall(flight, failure):
            self._land(flight, Answer(failure=Stalled(f"{failure}, asked {flight.attempts} times")))
        elif flight.seats:
            again = self._flights[flight.request.key] = flight.again()
            self._stalled.append(again)
            self._outcomes.tell(failure, now)
        return self._give_up(flight)

    @property
    def _presses(self) -> bool:
        return bool(self._ready or self._again or self._stalled or self._calls)

    def _until_something(self, now: float, when: float) -> float:
        late = next(iter(self._late.values())) if self._late else math.inf
        stall, _ = self._next_stall()
        self._look_at = min(self._look_at, stall)
        return max(0.0, min(when, late, stall, self._deadlines.next()) - now)

    def _depart(self, flight: Flight, now: float) -> Flight:
        flight.number = self.pace.departed(now, self.stats.in_flight + 1)
        self.stats.departed()
        self._stalling += flight.stalls > 0
        if flight.attempts:
            self.stats.retried += 1
        flight.failed = flight.failed or flight.number
        flight.attempts += 1
        flight.unpaid += 1
        flight.sent_at = now
        flight.in_the_air = True
        self._air[flight] = None
        return flight

    def _landed(self, flight: Flight) -> None:
        """The permit is free again."""
        self.stats.in_flight -= 1
        self._stalling -= flight.stalls > 0
        flight.in_the_air = False
        self._air.pop(flight, None)
        self._late.pop(flight, None)
        if flight.given_up:
            self._dying -= 1

    def _give_up(self, flight: Flight) -> GiveUp:
        """Forgotten first: from here on nobody can take a seat on it."""
        self._forget(flight)
        self._air.pop(flight, None)
        self._late.pop(flight, None)
        flight.given_up = True
        self._dying += 1
        return GiveUp(flight)

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.request.key) is flight:
            del self._flights[flight.request.key]

    def _prepare(self) -> None:
        """Look at the next few samples at once: building requests in a row costs half of building them one by one."""
        calls = self._calls
        for _ in range(_AHEAD):
            if not calls:
                return
            call = calls.popitem(last=False)[0]
            index, sample = call.fresh.popleft()
            if call.fresh:
                calls[call] = None  # calls take turns
            began = self.loop_time.begin()
            try:
                request = self.builder.build(sample)
                self.loop_time.end("messages", began)
                self._board(call, index, sample, request)
            except Failure as failure:  # the rubric could not write its messages
                self._tell(call, index, Answer(failure=failure))
            except Exception as error:
                self._tell(call, index, self._lost(error))

    def _board(self, call: Call, index: int, sample: Sample, request: Request) -> None:
        """A seat on the flight that is there, or on one of its own; or none, where the cache answers."""
        if (flight := self._flights.get(request.key)) is not None:
            self.stats.coalesced += 1
            if self._late.pop(flight, None) is not None:
                self._air[flight] = None
            flight.seats[call, index] = sample if self.reads_sample else None
            call.waiting[index] = flight
            return
        if self.cache is not None:
            reply = self.cache.get(request.key)
            if reply is not None:  # out of the cache, and read by the parser of today
                self.stats.cached += 1
                answer = self.read(reply, sample) if self.reads_sample else self.read(reply)
                self._tell(call, index, answer, cached=True)
                return
        if call.ended_by is not None:
            self._tell(call, index, Answer(failure=call.ended_by))
            return
        flight = Flight(request, {(call, index): sample if self.reads_sample else None})
        self._flights[request.key] = call.waiting[index] = flight
        self._ready.append(flight)

    def read(self, reply: Reply, *sample: Sample) -> Answer:
        """Here, on the loop: with the sample, where the rubric's parse wants it."""
        began = self.loop_time.begin()
        answer = grade(self.rubric, reply, *sample)
        self.loop_time.end("parse", began)
        return answer

    def _land(self, flight: Flight, answer: Answer) -> None:
        """Every seat gets this verdict, and the flight is over."""
        self._forget(flight)
        seats, flight.seats = flight.seats, {}
        for (call, index), sample in seats.items():
            if sample is not None and answer.reply is not None and answer.failure is None:
                self._tell(call, index, self.read(answer.reply, sample), flight)
            else:
                self._tell(call, index, answer, flight)

    def _leave(self, flight: Flight | None, call: Call, index: int, now: float) -> None:
        """One seat less; with the last one, a flight in the air is late, and any other is over."""
        if flight is None or (call, index) not in flight.seats:
            return
        del flight.seats[call, index]
        if not flight.seats:
            if flight.in_the_air:
                self._air.pop(flight, None)
                self._late[flight] = now + LATE_SECONDS
            else:
                self._forget(flight)
                self._parked.lost()

    def _expire(self, call: Call, now: float) -> None:
        def late(flight: Flight | None) -> Answer:
            before = f"; the last attempt: {flight.failure}" if flight is not None and flight.failure else ""
            return Answer(failure=DeadlinePassed(f"not judged before the deadline{before}"))

        self._fail_rest(call, late, now)

    def _fail_rest(self, call: Call, answer: Callable[[Flight | None], Answer], now: float) -> None:
        for index, flight in sorted(call.waiting.items()):
            self._leave(flight, call, index, now)
            if flight is not None and flight.in_the_air:
                flight.latency = now - flight.sent_at
            self._tell(call, index, answer(flight), flight)

    def _tell(
        self, call: Call, index: int, answer: Answer, flight: Flight | None = None, *, cached: bool = False
    ) -> None:
        if index not in call.waiting:
            return
        attempts, latency = 0, 0.0
        if flight is not None:
            attempts, flight.unpaid, latency = flight.unpaid, 0, flight.latency
        if answer.failure is not None:
            self.stats.count_failure(answer.failure.kind)
        try:
            verdict = answer.verdict(cached, attempts, latency, self.mask)
        except Exception as error:  # a reply that is none, or a failure without words
            verdict = self._lost(error).verdict(cached, attempts, latency, self.mask)
        try:
            call.settle(index, verdict)
        except Exception as error:
            self._lost(error)
        if not call.waiting:
            self._ended(call)

    def _ended(self, call: Call) -> None:
        """No sample of the call waits any more."""
        call.fresh.clear()
        self._calls.pop(call, None)
        if call in self._open:
            del self._open[call]
            self._deadlines.lost()

    def _lost(self, error: BaseException) -> Answer:
        """Who is failed by it hears why, and so does, once, the log."""
        what, traceback = described(error), error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        where = f" ({traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno})" if traceback is not None else ""
        line = f"an error inside rewardcore{where}, please report it: {what}"
        self._once.say(f"{type(error).__name__}{where}", logging.ERROR, "%s", self.mask(line))
        return Answer(failure=Failure(f"an error inside rewardcore: {what}"))

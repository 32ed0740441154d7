"""The promises, looked at after every event of an engine and at every instant at which nothing is left to do.

Safety: nothing wrong is ever told or sent. Liveness: whoever can get on does, and in the end nothing is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rewardcore.calls import Call, Run, at_work
from rewardcore.failures import DeadlinePassed, Denied, Failure, JudgeClosed, Stalled, WorkerDied, WrongPath
from rewardcore.http.cache import GuardedCache
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.engine import _STEPS_ASIDE, LOOK_SECONDS, Engine, Flight
from rewardcore.reply import Answer, Reply
from rewardcore.sample import Sample
from tests.simulation.world import Air, World, Wrong, score_of

_MOMENT = 1e-6


class Checked(Engine):
    """The engine as it is, with somebody looking over its shoulder."""

    world: World
    wire: Air
    resumed_at: Callable[[], float]
    is_closing = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.air: dict[Flight, None] = {}
        self.words: dict[tuple[Call, int], str] = {}
        self.draws: dict[tuple[Call, int], int] = {}
        self.opened: dict[Call | Run, float] = {}
        self.drawn: dict[str, int] = {}  # which draw each reply was told to
        self.ended_by: dict[Failure, float] = {}  # what has ended calls rightly, and when
        self.stalls: dict[Flight, int] = {}  # of each request, those that were its own
        self.stalled: tuple[Flight | None, float] = None, 0.0  # what was seen to be stalled, and since when
        self.failures = 0

    def open(self, call: Call) -> None:
        now = self.world.stage.now()
        self.opened[call] = now
        self.opened.setdefault(call.run or call, now)
        self.words.update({(call, index): sample.response for index, sample in call.fresh})
        self.draws.update({(call, index): sample.draw for index, sample in call.fresh})
        super().open(call)
        self._look()

    def take(self, now: float) -> Any:
        with at_work():  # on the loop, which the callers share here
            step = super().take(now)
        for call in self._open:
            if call.deadline <= now:
                raise Wrong("a call is past its deadline, and nobody was told")
        self._look()
        return step

    def settle(self, flight: Flight, answer: Answer, now: float) -> None:
        failure, has_replied = answer.failure, self._outcomes._replied
        if failure is not None and (failure.opens_breaker or (failure.opens_breaker_at_first and not has_replied)):
            self.ended_by[failure] = now
        with at_work():
            super().settle(flight, answer, now)
        self._look()

    def read(self, reply: Reply, *sample: Sample) -> Answer:
        with at_work():
            return super().read(reply, *sample)

    def gone(self, flight: Flight) -> None:
        super().gone(flight)
        self._look()

    def abandon(self, call: Call, now: float) -> None:
        super().abandon(call, now)
        self._look()

    def close(self, now: float) -> None:
        self.is_closing = True
        super().close(now)

    def _depart(self, flight: Flight, now: float) -> Flight:
        for other in self.air:
            if other.request.key == flight.request.key and not other.given_up:
                raise Wrong("the same request is on the wire twice: it is paid twice where it could be shared")
        cache: Any = self.cache
        is_asked = not getattr(cache, "_is_broken", False) and getattr(cache, "is_at_work", True)
        kept = getattr(cache.cache if isinstance(cache, GuardedCache) else cache, "kept", ())
        if is_asked and self.builder.material(flight.request) in kept:
            raise Wrong(f"a request is sent whose reply is in the cache: {flight.request.body!r:.200}")
        self.air[flight] = None
        return super()._depart(flight, now)

    def _landed(self, flight: Flight) -> None:
        if flight not in self.air:
            raise Wrong("a request ends that was not on the wire")
        del self.air[flight]
        super()._landed(flight)

    def _ask_again(self, flight: Flight, now: float) -> Any:
        key, is_own = flight.request.key, self._outcomes._answered_at > flight.sent_at
        stalls = self.stalls.pop(flight, 0) + is_own
        if stalls > self.blame._max_retries + 1:
            raise Wrong("a request stalls by itself, and is asked again for ever")
        step = super()._ask_again(flight, now)
        again = self._flights.get(key)
        if again is not None:
            self.stalls[again] = stalls
        if again is not None and again is not flight and len(again.faults) < len(flight.faults):
            raise Wrong("a request that has stalled loses its faults")
        return step

    def _tell(
        self, call: Call, index: int, answer: Answer, flight: Flight | None = None, *, cached: bool = False
    ) -> None:
        if index in call.waiting:
            self.failures += answer.failure is not None
            self._check_verdict(call, index, answer, flight)
        super()._tell(call, index, answer, flight, cached=cached)

    def _check_verdict(self, call: Call, index: int, answer: Answer, flight: Flight | None) -> None:
        word, now, failure = self.words[call, index], self.world.stage.now(), answer.failure
        self.world.note(f"told {word}: {'ok' if failure is None else repr(failure)}")
        if now > max(call.deadline, self.opened[call], self.resumed_at()) + _MOMENT:
            raise Wrong(f"{word} has its verdict at {now}, after its deadline {call.deadline}")
        if failure is None:
            if answer.score != score_of(word):
                raise Wrong(f"{word} scores {answer.score}, which is another sample's")
            draw, said = self.draws[call, index], answer.reply.text if answer.reply is not None else ""
            if self.drawn.setdefault(said, draw) != draw:
                raise Wrong(f"two draws have one reply: {said!r}")
        elif wrong := self._wrong_failure(call, word, failure, now, () if flight is None else flight.faults):
            raise Wrong(f"{word} {wrong}: {failure!r}")

    def _wrong_failure(self, call: Call, word: str, failure: Failure, now: float, faults: tuple[Failure, ...]) -> str:
        """What is wrong with it, if anything is."""
        said = str(failure)
        if isinstance(failure, DeadlinePassed):
            return "is a timeout before its deadline" if now < call.deadline - _MOMENT else ""
        if isinstance(failure, JudgeClosed):
            return "" if self.is_closing else "is told that the judge was closed, and it was not"
        if failure in self.ended_by:
            since = self.opened.get(call.run or call, self.opened[call])
            is_late = self.ended_by[failure] < since - _MOMENT
            return "is ended by what an earlier call has met" if is_late else ""
        if isinstance(failure, WorkerDied) and "process" in said:
            is_final = self.world.losses > 1 or len(faults) > self.blame._max_retries
            return "" if is_final else "fails though no two processes have died"
        if "the worker's answer did not arrive" in said:
            return "" if self.world.babble else "has an answer that did not arrive, and nobody babbled"
        if "nobody's fault" in said and word.split("-")[0] in ("quick", "slow", "nested"):
            own = [fault for fault in faults if "nobody's fault" not in str(fault)]
            is_last = sum(len(other.waiting) for other in self._open) == 1  # nobody can tell an outage from a fault
            is_excused = own or is_last or "past the deadline" in said or self.blame._max_retries < 5
            return "" if is_excused else "is given up for what is not its fault"
        if isinstance(failure, Stalled) and "asked" in said:
            is_prompt = word.startswith("quick") and not self.resumed_at() and not self.world.children
            return "has stalled, and is quick" if is_prompt else ""
        if isinstance(failure, (Denied, WrongPath)) and not word.startswith("filtered"):
            return "is denied, and nobody denied it"
        if not any(cause in said for cause in self.world.causes.get(word, ())):
            return "fails without a cause of its own"
        return ""

    def _look(self) -> None:
        if self.stats.in_flight != len(self.air):
            raise Wrong(f"{self.stats.in_flight} permits are taken for {len(self.air)} requests on the wire")
        if self.stats.in_flight > self.pace.ceiling:
            raise Wrong(f"{self.stats.in_flight} permits are taken where there are {self.pace.ceiling}")
        if self._dying != sum(flight.given_up for flight in self.air):
            raise Wrong("the dying are miscounted")
        if sum(self.stats.failed.values()) != self.failures:
            raise Wrong(f"{self.failures} samples have failed, and {self.stats.failed} are counted")
        for key, flight in self._flights.items():
            if flight.given_up or flight.request.key != key:
                raise Wrong("a sample could take a seat on a flight that was given up")
        for call in self._open:
            if not call.waiting:
                raise Wrong("a call is open though nobody waits")
            for index, flight in call.waiting.items():
                if flight is not None and (flight.given_up or (call, index) not in flight.seats):
                    raise Wrong("a sample sits on a flight that is dead or does not know of it")
        for call in self._calls:
            if call not in self._open:
                raise Wrong("a call that is over keeps its unsent samples")
        for flight in self._late:
            if flight.seats or not flight.in_the_air:
                raise Wrong("a flight is late that is wanted, or not in the air")


def check_instant(engine: Checked, driver: LoopDriver) -> None:
    """Nothing is left to do at this instant: so whoever could get on has."""
    if engine.is_closing:
        return
    now, in_flight = engine.world.stage.now(), engine.stats.in_flight
    carried = sum(flight is not None for flight in driver._workers.values())
    if carried != in_flight:
        raise Wrong(f"{in_flight} permits are taken, and {carried} requests are carried: a permit has leaked")
    if any(call.deadline < now - _MOMENT for call in engine._open):
        raise Wrong("a call outlives its deadline, and nobody was told")
    when, stalled = engine._next_stall()
    if when >= now or stalled is not engine.stalled[0]:
        engine.stalled = stalled, now
    if now - engine.stalled[1] > LOOK_SECONDS + _MOMENT:
        raise Wrong(f"a request has stalled since {when:.3f}, and nobody has looked")
    queues = engine._ready, engine._stalled
    if any(flight.seats for queue in queues for flight in queue) or any(call.fresh for call in engine._calls):
        if engine.pace.wait(now, in_flight) == 0.0:
            raise Wrong("a sample waits though a place is free")
        if not in_flight and engine.pace.wait(now, 0) == math.inf:
            raise Wrong("a sample waits for ever, since nothing is in the air")
        if in_flight >= engine.pace.window:
            if engine._late and not engine._dying and engine.pace.wait(now, in_flight) == math.inf:
                raise Wrong("a sample waits for the place of a request that nobody wants")
            _check_hanging(engine, now)


def _check_hanging(engine: Checked, now: float) -> None:
    """The window is full and others wait: not for ever behind requests that hang."""
    air = list(engine._air)
    if air and len(air) == engine.stats.in_flight:
        latest, deadline = max(flight.sent_at for flight in air), air[0].deadline
        seconds = max(_STEPS_ASIDE, 0.5 * (deadline - latest)) + LOOK_SECONDS + _MOMENT
        if latest + seconds < now < deadline and math.isinf(engine.patience.seconds(0, 0)):
            raise Wrong("samples wait behind requests that hang")


def check_end(engine: Checked) -> None:
    """The judge is closed: nothing is left."""
    left = {
        "on the wire": dict(engine.wire.wire),
        "in the air": engine.air,
        "known": engine._flights,
        "late": engine._late,
        "open": engine._open,
        "not looked at": engine._calls,
        "permits": engine.stats.in_flight,
        "dying": engine._dying,
        "seen by the loop alone": engine.world.stage.wrong,
        "sent and not counted": max(0, engine.wire.sent - engine.stats.requests),
    }
    if any(left.values()):
        raise Wrong(f"something is left in the end: { {name: value for name, value in left.items() if value} }")

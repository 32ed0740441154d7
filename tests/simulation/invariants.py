"""The promises, looked at after every event of the engine and at every instant at which nothing is left to do.

Safety: nothing wrong is ever told or sent. Liveness: whoever can get on does, and in the end nothing is left.
"""

from __future__ import annotations

import math
from typing import Any

from rewardcore.calls import Call, Run
from rewardcore.failures import DeadlinePassed, Denied, JudgeClosed
from rewardcore.http.cache import GuardedCache
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.engine import Engine, Flight
from rewardcore.reply import Answer
from tests.simulation.world import World, Wrong, score_of

_MOMENT = 1e-6


class Checked(Engine):
    """The engine as it is, with somebody looking over its shoulder."""

    world: World
    is_closing = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.air: dict[Flight, None] = {}
        self.words: dict[tuple[Call, int], str] = {}
        self.tellings: dict[str, list[tuple[Run | None, int]]] = {}

    def open(self, call: Call) -> None:
        self.words.update({(call, index): sample.response for index, sample in call.fresh})
        super().open(call)
        self._look()

    def take(self, now: float) -> Any:
        step = super().take(now)
        for call in self._open:
            if call.deadline <= now:
                raise Wrong("a call is past its deadline, and nobody was told")
        self._look()
        return step

    def settle(self, flight: Flight, answer: Answer, now: float) -> None:
        super().settle(flight, answer, now)
        self._look()

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
        is_asked = isinstance(self.cache, GuardedCache) and not self.cache._is_broken and not self._numbers_draws
        if is_asked and self.world.cache is not None and flight.request.body in self.world.cache.kept:
            raise Wrong("a request is sent whose reply is in the cache")
        self.air[flight] = None
        return super()._depart(flight, now)

    def _landed(self, flight: Flight) -> None:
        if flight not in self.air:
            raise Wrong("a request ends that was not on the wire")
        del self.air[flight]
        super()._landed(flight)

    def _tell(
        self, call: Call, index: int, answer: Answer, flight: Flight | None = None, *, cached: bool = False
    ) -> None:
        if index in call.waiting:
            self._check_verdict(call, index, answer)
        super()._tell(call, index, answer, flight, cached=cached)

    def _check_verdict(self, call: Call, index: int, answer: Answer) -> None:
        word, now, failure = self.words[call, index], self.world.stage.now(), answer.failure
        self.world.note(f"told {word}: {'ok' if failure is None else repr(failure)}")
        if now > call.deadline + _MOMENT:
            raise Wrong(f"{word} has its verdict at {now}, after its deadline {call.deadline}")
        if failure is None:
            if answer.score != score_of(word):
                raise Wrong(f"{word} scores {answer.score}, which is another sample's")
            self._check_draw(call, index, answer)
        elif isinstance(failure, DeadlinePassed):
            if now < call.deadline - _MOMENT:
                raise Wrong(f"{word} is a timeout at {now}, before its deadline {call.deadline}")
        elif isinstance(failure, JudgeClosed):
            if not self.is_closing:
                raise Wrong(f"{word} is told that the judge was closed, and it was not")
        elif isinstance(failure, Denied):
            if not self.world.breaker_opened:
                raise Wrong(f"{word} is denied, and nobody denied it")
        elif "nobody's fault" in str(failure) and word.split("-")[0] in ("quick", "slow", "nested"):
            raise Wrong(f"{word} is given up for what is not its fault: {failure!r}")
        elif not any(cause in str(failure) for cause in self.world.causes.get(word, ())):
            raise Wrong(f"{word} fails without a cause of its own: {failure!r}")

    def _check_draw(self, call: Call, index: int, answer: Answer) -> None:
        if not self._numbers_draws or answer.reply is None:
            return
        earlier = self.tellings.setdefault(answer.reply.text, [])
        if any(run is call.run or (run is not None and run.open_calls) for run, _ in earlier):
            raise Wrong(f"an independent draw is shared: {answer.reply.text!r}")
        earlier.append((call.run, index))

    def _look(self) -> None:
        if self.stats.in_flight != len(self.air):
            raise Wrong(f"{self.stats.in_flight} permits are taken for {len(self.air)} requests on the wire")
        if self._dying != sum(flight.given_up for flight in self.air):
            raise Wrong("the dying are miscounted")
        for key, flight in self._flights.items():
            if flight.given_up or flight.request.key != key:
                raise Wrong("a sample could take a seat on a flight that was given up")
        for call in self._open:
            if not call.waiting:
                raise Wrong("a call is open though nobody waits")
            for index, flight in call.waiting.items():
                if flight is not None and (flight.given_up or (call, index) not in flight.seats):
                    raise Wrong("a sample sits on a flight that is dead or does not know of it")
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
    queues = engine._ready, engine._stalled
    if any(flight.seats for queue in queues for flight in queue) or any(call.fresh for call in engine._calls):
        if engine.pace.wait(now, in_flight) == 0.0:
            raise Wrong("a sample waits though a place is free")
        if not in_flight and engine.pace.wait(now, 0) == math.inf:
            raise Wrong("a sample waits for ever, since nothing is in the air")
        if in_flight >= engine.pace.window and engine._late and not engine._dying:
            raise Wrong("a sample waits for the place of a request that nobody wants")


def check_end(engine: Checked, world: World) -> None:
    """The judge is closed: nothing is left."""
    left = {
        "on the wire": dict(world.in_the_air),
        "in the air": engine.air,
        "known": engine._flights,
        "late": engine._late,
        "open": engine._open,
        "draws": engine._draws,
        "permits": engine.stats.in_flight,
        "dying": engine._dying,
        "seen by the loop alone": world.stage.wrong,
    }
    if any(left.values()):
        raise Wrong(f"something is left in the end: { {name: value for name, value in left.items() if value} }")

"""Plays batches with the real engine against an endpoint's logic, in virtual time: a heap of answers, and no loop.

All but the socket and the clock is what a judge runs: requests are built, replies and refusals read, verdicts told.
Answers are heard after everything that may leave at that instant has left, as over a network. `own_pace` is what a
client could do that knew beforehand what the endpoint accepts: it is never refused.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import orjson

import rewardcore
from bench.profiles.endpoints import Decision, Endpoint
from bench.scenarios import PROFILED, samples_of
from rewardcore.calls import Call, nobody
from rewardcore.failures import Failure
from rewardcore.http.engine import Engine, Flight
from rewardcore.http.pace import AUTO_CEILING, Pace
from rewardcore.http.reading import ReplyReader
from rewardcore.http.request import RequestBuilder
from rewardcore.http.retry import MAX_RETRIES, Blame
from rewardcore.reply import Answer
from rewardcore.rubrics import QUALITY, Rubric
from rewardcore.rubrics.rubric import grade
from rewardcore.verdict import Verdict

if TYPE_CHECKING:
    from rewardcore.stats import PaceChange  # which an older revision, measured with this harness, does not have

BATCHES, SIZE, SEED = 5, PROFILED.n, PROFILED.seed
ADDRESS = rewardcore.Endpoint("http://judge.test/v1", model="judge")
Setting = int | Literal["auto"]


class Moment(NamedTuple):
    """What was allowed and what was so, before time goes on; `refused` counts all until then."""

    time: float
    window: int
    in_flight: int
    refused: int


@dataclass(frozen=True)
class Played:
    """What became of all batches; samples that had no verdict in time are `lost` too."""

    makespans: tuple[float, ...]
    requests: int
    refused: int
    retried: int
    statuses: dict[str, int]
    lost: int
    moments: tuple[Moment, ...]
    changes: tuple[PaceChange, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(self.makespans)

    @property
    def refused_share(self) -> float:
        return self.refused / self.requests


def new_pace(setting: Setting, seed: int = SEED) -> Pace:
    """As a judge's settings would open it, but for the seed."""
    uniform = random.Random(seed).random
    return Pace(AUTO_CEILING, finds=True, uniform=uniform) if setting == "auto" else Pace(setting, uniform=uniform)


def play(endpoint: Endpoint, pace: Pace, batches: int = BATCHES, until: float = math.inf) -> Played:
    """Each batch is judged to its end before the next one comes; none goes on after `until`."""
    player = Player(endpoint, pace)
    for batch in range(batches):
        player.judge(batch, until)
    engine = player.engine
    return Played(
        tuple(player.makespans),
        engine.stats.requests,
        player.refused,
        engine.stats.retried,
        dict(player.statuses),
        batches * SIZE - player.statuses["ok"],
        tuple(player.moments),
        tuple(player.changes),
    )


class Player:
    def __init__(
        self, endpoint: Endpoint, pace: Pace, rubric: Rubric = QUALITY, max_retries: int = MAX_RETRIES
    ) -> None:
        self.endpoint = endpoint
        uniform, builder = random.Random(endpoint.seed + 1).random, RequestBuilder(ADDRESS, rubric)
        self.engine = Engine(builder, rubric, None, pace, blame=Blame(max_retries), uniform=uniform)
        self.now = 0.0
        self.reader = ReplyReader(ADDRESS, lambda: self.now)
        self.refused = 0
        self.makespans: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.moments: list[Moment] = []
        self.changes: list[PaceChange] = []
        self._answers: list[tuple[float, int, Flight, Decision]] = []
        self._ordinal = itertools.count()
        self._accepted = 0

    def judge(self, batch: int, until: float = math.inf, size: int = SIZE) -> None:
        began = self.now
        call = Call(enumerate(_samples()[:size], batch * size), math.inf, self._tell, nobody)
        self.engine.open(call)
        while call.waiting and self.now <= until:
            self._step()
        self.makespans.append(self.now - began)

    def _step(self) -> None:
        """Send what may leave now; then go on to the next answer, or to when more may leave."""
        while not isinstance(step := self.engine.take(self.now), float) or step == 0.0:
            if isinstance(step, Flight):
                self._send(step)
            elif step != 0.0:
                raise AssertionError(f"nobody leaves a call here, and no rubric waits, yet the engine says {step!r}")
        self._look()
        alarm = self.now + step
        if self._answers and self._answers[0][0] <= alarm:
            self._hear()
        elif alarm < math.inf:
            self.now = alarm
        else:
            raise AssertionError("samples wait, nothing is in the air, and the engine has nothing to do")

    def _send(self, flight: Flight) -> None:
        _, sample = next(iter(flight.seats))
        decision = self.endpoint.decide(sample, self.now, self._accepted)
        self._accepted += decision.status == 200
        heapq.heappush(self._answers, (self.now + decision.seconds, next(self._ordinal), flight, decision))

    def _hear(self) -> None:
        self.now, _, flight, decision = heapq.heappop(self._answers)
        is_accepted = decision.status == 200
        self._accepted -= is_accepted
        self.refused += not is_accepted
        self.engine.settle(flight, self._read(decision), self.now)

    def _read(self, decision: Decision) -> Answer:
        body = _body(decision.tokens) if decision.status == 200 else b""
        try:
            return grade(self.engine.rubric, self.reader.read(decision.status, dict(decision.headers), body))
        except Failure as failure:
            return Answer(failure=failure)

    def _look(self) -> None:
        pace, in_flight = self.engine.pace, self.engine.stats.in_flight
        self.moments.append(Moment(self.now, pace.window, in_flight, self.refused))
        latest = list(getattr(pace, "changes", ()))  # it keeps ten; an older revision's none
        known = next((place for place, one in enumerate(latest, 1) if self.changes and one is self.changes[-1]), 0)
        self.changes += latest[known:]

    def _tell(self, index: int, verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1


def own_pace(endpoint: Endpoint, at_once: float = math.inf, batches: int = BATCHES) -> tuple[float, ...]:
    """The makespans of a client that knows when each sample is accepted, with so many in flight at most."""
    now, makespans = 0.0, []
    for batch in range(batches):
        began, landings = now, list[float]()
        waiting = iter(range(batch * SIZE, (batch + 1) * SIZE))
        sample = next(waiting, None)
        while sample is not None:
            opens_at = endpoint.opens_at(sample, now, len(landings)) if len(landings) < at_once else math.inf
            if opens_at <= now:
                decision = endpoint.decide(sample, now, len(landings))
                assert decision.status == 200, "it knew better"
                heapq.heappush(landings, now + decision.seconds)
                sample = next(waiting, None)
            elif landings and landings[0] <= opens_at:
                now = heapq.heappop(landings)
            else:
                now = opens_at
        now = max(landings, default=now)
        makespans.append(now - began)
    return tuple(makespans)


_samples = functools.cache(functools.partial(samples_of, PROFILED))


@functools.cache
def _body(tokens: int) -> bytes:
    message = {"role": "assistant", "content": "Sound. <score>10</score>"}
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
    return orjson.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

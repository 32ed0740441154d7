"""Defects that were there once, put back one at a time: a simulation that does not find them proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rewardcore import calls, judge
from rewardcore.calls import Call
from rewardcore.failures import DeadlinePassed
from rewardcore.http.cache import GuardedCache
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.engine import Engine, Flight, GiveUp
from rewardcore.http.request import Request
from rewardcore.http.retry import Blame
from rewardcore.reply import Answer
from tests.simulation import stage


def _give_up_without_forgetting(self: Engine, flight: Flight) -> GiveUp:
    self._late.pop(flight, None)
    flight.given_up = True
    self._dying += 1
    return GiveUp(flight)


def _gone_with_its_passengers(self: Engine, flight: Flight) -> None:
    self._landed(flight)
    self._land(flight, Answer(failure=DeadlinePassed("no answer came, long after the deadline")))


def _left_before_it_began(self: LoopDriver, task: asyncio.Task[None]) -> None:
    self._workers.pop(task)


def _make_room_only_for_a_new_call(take: Callable[..., Any]) -> Callable[..., Any]:
    def taken(self: Engine, now: float) -> Any:
        late, self._late = self._late, {}
        try:
            return take(self, now)
        finally:
            self._late = late | self._late

    return taken


def _raise_it(_: object, method: str, error: BaseException) -> None:
    raise error


def _number_draws_by_call(self: Engine, call: Call, request: Request) -> Request:
    number = call.run.draws[request.key]
    call.run.draws[request.key] += 1
    return self.builder.repeated(request, number)


@contextmanager
def _patched(*patches: Any) -> Iterator[None]:
    patches = (*patches, patch.object(stage, "PATIENCE", 1.0))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def _nothing() -> None:
    pass


#: What each was, and how to put it back.
DEFECTS: dict[str, Callable[[], Any]] = {
    "asking again takes a seat on a dying request": lambda: _patched(
        patch.object(Engine, "_give_up", _give_up_without_forgetting),
        patch.object(Engine, "gone", _gone_with_its_passengers),
    ),
    "a request given up before its first step keeps its permit": lambda: _patched(
        patch.object(LoopDriver, "_left", _left_before_it_began)
    ),
    "late requests starve a call that waits already": lambda: _patched(
        patch.object(Engine, "take", _make_room_only_for_a_new_call(Engine.take))
    ),
    "what a cache raises escapes to the loop": lambda: _patched(
        patch.object(GuardedCache, "_step_aside", _raise_it),
        patch.object(Engine, "_lost", lambda _, error: _raise_it(_, "", error)),
    ),
    "a rubric that asks another judge stops the loop": lambda: _patched(
        patch.object(calls, "check_may_wait", _nothing), patch.object(judge, "check_may_wait", _nothing)
    ),
    "an outage is taken for the sample's fault": lambda: _patched(
        patch.object(Blame, "falls_on", lambda *_: True),
        patch.object(Blame, "is_final", lambda _, faults: len(faults) > 2),
    ),
    "independent draws are shared between calls": lambda: _patched(
        patch.object(Engine, "_draw", _number_draws_by_call)
    ),
}

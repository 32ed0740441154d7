"""Defects that were there once, or must never come, put back one at a time: one that is not found proves nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from rewardcore import calls, judge, notices
from rewardcore.calls import Batch, Call, Driver
from rewardcore.http import cache, engine, outcomes, processes, reading
from rewardcore.http.cache import GuardedCache, SqliteCache
from rewardcore.http.drivers import remote
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.drivers.remote import RemoteDriver
from rewardcore.http.engine import Engine
from rewardcore.http.flight import Flight
from rewardcore.http.outcomes import Outcomes
from rewardcore.http.pace import refusals
from rewardcore.http.pace.quota import Allowance
from rewardcore.http.pace.refusals import Row
from rewardcore.http.pace.states import Window
from rewardcore.http.processes import SpawnedChild
from rewardcore.http.request import RequestBuilder
from rewardcore.http.retry import Blame
from rewardcore.http.transports.worker_pool import WorkerPool
from rewardcore.judge import Judge
from tests.simulation import put_back, threads

_put = patch.object
_SAYERS = notices, judge, cache, engine, outcomes, processes, remote


@contextmanager
def _patched(*patches: Any) -> Iterator[None]:
    patches = (*patches, _put(threads, "PATIENCE", 1.0))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def _nothing(*_: object) -> None:
    pass


def _raised(_: object, method: str, error: BaseException) -> None:
    raise error


#: What each was, and how to put it back.
DEFECTS: dict[str, Callable[[], Any]] = {
    "asking again takes a seat on a dying request": lambda: _patched(
        _put(Engine, "_give_up", put_back.give_up_without_forgetting),
        _put(Engine, "gone", put_back.gone_with_its_passengers),
    ),
    "a request given up before its first step keeps its permit": lambda: _patched(
        _put(LoopDriver, "_left", put_back.left_before_it_began)
    ),
    "late requests starve a call that waits already": lambda: _patched(
        _put(Engine, "take", put_back.make_room_only_for_a_new_call(Engine.take))
    ),
    "what a cache raises escapes to the loop": lambda: _patched(
        _put(GuardedCache, "_step_aside", _raised), _put(Engine, "_lost", put_back.raise_it)
    ),
    "nobody notices a rubric that waits for a judge": lambda: _patched(
        _put(calls, "check_may_wait", _nothing), _put(judge, "check_may_wait", _nothing)
    ),
    "an outage is taken for the sample's fault": lambda: _patched(
        _put(Blame, "falls_on", lambda *_: True), _put(Blame, "is_final", lambda _, faults: len(faults) > 2)
    ),
    "a draw is left out of the key": lambda: _patched(
        _put(RequestBuilder, "build", put_back.build_for_any_draw(RequestBuilder.build))
    ),
    # What is told happens beside a call, and a last line of defence stands behind it.
    "a log that raises keeps a verdict from its caller": lambda: _patched(
        *(_put(module, "say", put_back.say_it) for module in _SAYERS),
        _put(Batch, "_finish", put_back.finish_when_all_are_told),
    ),
    "a caller that cannot be told keeps a verdict from another": lambda: _patched(
        _put(Call, "settle", put_back.settle_as_long_as_nobody_raises)
    ),
    "two threads count in one tally of losses": lambda: _patched(_put(judge, "Losses", put_back.SharedLosses)),
    "what nobody expected leaves its call open": lambda: _patched(
        _put(cache, "is_reply", lambda _: True),
        _put(Engine, "take", Engine._take),
        _put(Engine, "_lost", put_back.raise_it),
    ),
    "a cache that raises costs its sample the verdict": lambda: _patched(_put(GuardedCache, "_step_aside", _raised)),
    "nonsense out of a cache is taken for a reply": lambda: _patched(_put(cache, "is_reply", lambda _: True)),
    # Requests that stall, and what ends a run.
    "nobody sees a stall while the window is full": lambda: _patched(_put(engine, "LOOK_SECONDS", math.inf)),
    "a stall is no retry": lambda: _patched(_put(Outcomes, "is_last_stall", lambda *_: False)),
    "one that hangs keeps the only place": lambda: _patched(
        _put(Engine, "_next_stall", put_back.step_aside_for_nobody)
    ),
    "a stalled request loses its faults": lambda: _patched(
        _put(Flight, "again", put_back.again_without_faults(Flight.again))
    ),
    "an open breaker ends later calls too": lambda: _patched(
        _put(Engine, "open", put_back.open_into_what_is_broken(Engine.open))
    ),
    "one sample's 403 ends the run": lambda: _patched(
        _put(Outcomes, "ends_all", lambda _, failure: failure.opens_breaker or failure.opens_breaker_at_first)
    ),
    "an abandoned call keeps its unsent samples": lambda: _patched(
        _put(Engine, "_ended", put_back.end_and_keep_what_is_unsent)
    ),
    "a stream's wake-up is lost": lambda: _patched(_put(Judge, "stream", put_back.interrupted_stream)),
    "whoever closes second comes back too early": lambda: _patched(_put(Driver, "end", put_back.end_for_the_first)),
    # The pace.
    "a rate is read wrongly from a quota": lambda: _patched(_put(reading, "read_quota", put_back.rate_of_a_tenth)),
    "headers of a window are taken for a bucket's": lambda: _patched(
        _put(Allowance, "told", put_back.told_of_a_bucket(Allowance.told)),
        _put(Allowance, "opens_at", put_back.at_the_slowest_rate),
    ),
    "a single failure is taken for an outage": lambda: _patched(_put(Row, "is_one", put_back.a_row_of_one)),
    "a stray refusal leaves a slow pace behind": lambda: _patched(
        _put(Row, "is_one", put_back.a_row_of_one),
        _put(Window, "resumed", put_back.resumed_as_slowly_as_probed(Window.resumed)),
    ),
    "chance is taken for a rate": lambda: _patched(_put(refusals, "_HELPED", math.inf)),
    # Other processes.
    "the parent leaves the deadline to its child": lambda: _patched(_put(RemoteDriver, "_due", _nothing)),
    "stats wait for a child that is stopped": lambda: _patched(_put(remote, "_ASKING_SECONDS", 5.0)),
    "close waits for a child that is stopped": lambda: _patched(_put(processes, "_SILENT_BEATS", 1000)),
    "a child that cannot start leaves its callers": lambda: _patched(
        _put(SpawnedChild, "give_up", put_back.give_up_silently_while_it_starts(SpawnedChild.give_up))
    ),
    "a child that dies leaves its callers": lambda: _patched(_put(RemoteDriver, "lost", put_back.lose_a_child_only)),
    "a worker is lost at a cancel": lambda: _patched(_put(WorkerPool, "send", put_back.send_and_forget_who_died)),
    # What is kept.
    "a row is gone before its commit": lambda: _patched(
        _put(SqliteCache, "_write", put_back.write_what_is_no_longer_there)
    ),
}

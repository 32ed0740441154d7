"""Judging in another process: `RemoteDriver` as it is, each of its children with `judge_here`, engine and driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rewardcore.http.drivers import elsewhere
from rewardcore.http.drivers.elsewhere import judge_here
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.drivers.remote import RemoteDriver
from rewardcore.http.transports import httpx_client, worker_pool
from rewardcore.http.transports.worker_pool import WorkerPool, _answer_requests
from tests.simulation.children import Blocking, PlayedChild, Signals
from tests.simulation.ears import ChildsLog
from tests.simulation.stage import Stage
from tests.simulation.threads import Thread
from tests.simulation.world import ENDPOINT, Rubric, World, Wrong

#: Seconds after its deadline within which the parent ends a call, whatever has become of its child.
GRACE = 2.0
#: Seconds within which `stats` answers.
ANSWERS_IN = 0.5
_MOMENT = 1e-6


def open_remote(world: World, open_driver: Callable[[], LoopDriver]) -> RemoteDriver:
    """From a thread of the history, as its opener waits for the loop."""
    stage: Any = world.stage
    return RemoteDriver(stage, stage, lambda listener: PlayedChild(world, listener, judge_here, open_driver, 0))


def open_pool(world: World, rubric: Rubric) -> WorkerPool:
    return WorkerPool(lambda listener: PlayedChild(world, listener, _answer_requests, ENDPOINT, rubric, None))


def check_remote(driver: RemoteDriver, world: World) -> None:
    """At an instant at which nothing is left to do."""
    now, stage = world.stage.now(), world.stage
    for call in driver._calls.values():
        if now > max(call.deadline, stage.resumed_at) + GRACE + _MOMENT:
            raise Wrong("a call outlives its deadline, and its process is not answering")
        if not call.waiting:
            raise Wrong("a call is over, and is kept")
    if driver._calls and driver._child.reason and not driver._closed:
        raise Wrong("calls wait for a process that is gone")
    if driver._calls.keys() != driver._alarms.keys():
        raise Wrong("a call has no alarm, or an alarm no call")


def check_remote_end(driver: RemoteDriver) -> None:
    left = driver._calls, driver._alarms, driver._asked, driver._ending, driver.stats().in_flight
    if any(left):
        raise Wrong(f"the parent keeps something in the end: {left}")


@contextlib.contextmanager
def played(stage: Stage) -> Iterator[None]:
    """What a child's own code has of its process is that of the history."""

    class Started:
        def __init__(self, target: Callable[[], object], **_: object) -> None:
            self.start = partial(Thread, stage, target, is_interrupted=False)

    class Nobody(Started):
        def __init__(self, **_: object) -> None:
            self.start = lambda: None  # type: ignore[assignment]

    threads = SimpleNamespace(Thread=Started, Event=stage.event, Lock=contextlib.nullcontext)
    with (
        patch.multiple(elsewhere, threading=threads, log=ChildsLog()),
        patch.multiple(worker_pool, signal=Signals, threading=SimpleNamespace(Thread=Nobody)),
        patch.object(worker_pool.warnings, "filterwarnings", lambda *_: None),
        patch.object(httpx_client, "BlockingHttpx", Blocking),
    ):
        yield

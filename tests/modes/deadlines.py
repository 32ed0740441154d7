"""A deadline for some of a judge's calls: who is to be timed out waits a moment, and who is to be judged has a minute.

A judge has one deadline for every call. A test that wants both would have to choose one that is short for an idle
machine and long for a busy one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import rewardcore as rc
from rewardcore.http.drivers.sync import SyncDriver
from tests.modes.hostile_server import Script, eventually

#: The first is long for an idle machine, and the last for a busy one.
_SECONDS = (1.0, 4.0, 16.0, 64.0)


@contextmanager
def hurried(judge: rc.Judge, seconds: float) -> Iterator[None]:
    """Calls that begin within have so many seconds. In sync mode a call begins when somebody waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_deadline_seconds", seconds)
        if isinstance(judge._driver, SyncDriver):
            patch.setattr(judge._driver, "_deadline", seconds)
        yield


def timed_out(
    judge: rc.Judge, samples: list[rc.Sample], is_far_enough: Callable[[list[rc.Verdict]], object]
) -> list[rc.Verdict]:
    """The verdicts of a call that was far enough when its deadline came; until one is, the next call has longer."""
    for seconds in _SECONDS:
        with hurried(judge, seconds):
            verdicts = judge.judge(samples)
        if is_far_enough(verdicts):
            break
    return verdicts


def runs_out(judge: rc.Judge, script: Script, count: int, on_the_wire: int) -> rc.Pending:
    """A call of so many samples, some of them on the wire, whose deadline is still to come."""
    for seconds in _SECONDS:
        with hurried(judge, seconds):
            pending = judge.submit(script.samples(count))
        eventually(lambda pending=pending: script.requests >= on_the_wire or pending.done(), "it is sent", 90.0)
        if not pending.done():
            break
    return pending

"""A deadline for some of a judge's calls: who is to be timed out waits a moment, and who is to be judged has a minute.

A judge has one deadline for every call. A test that wants both would have to choose one that is short for an idle
machine and long for a busy one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import rewardcore as rc
from rewardcore.http.drivers.sync import SyncDriver


@contextmanager
def hurried(judge: rc.Judge, seconds: float) -> Iterator[None]:
    """Calls that begin within have so many seconds. In sync mode a call begins when somebody waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_deadline_seconds", seconds)
        if isinstance(judge._driver, SyncDriver):
            patch.setattr(judge._driver, "_deadline", seconds)
        yield

"""The sync mode: the loop driver with one place, whose calls begin when somebody waits for them.

It is the baseline that every speed-up is measured against, and the simplest way to judge a few samples.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from ...calls import Call
from ...failures import RewardcoreError
from .loop import LoopDriver


class SyncDriver(LoopDriver):
    def __init__(self, deadline: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._deadline = deadline
        #: Whoever pops a call begins it, ends it or has abandoned it: no two threads do.
        self._unasked: weakref.WeakKeyDictionary[Call, bool] = weakref.WeakKeyDictionary()

    def begin(self, call: Call) -> None:
        with self._posting:
            if self._closed:
                raise RewardcoreError("this judge is closed; open another")
            self._unasked[call] = True

    def wanted(self, call: Call) -> None:
        if self._unasked.pop(call, False):
            call.deadline = self.clock.now() + self._deadline
            super().begin(call)

    def abandon(self, call: Call) -> None:
        self._unasked.pop(call, False)
        super().abandon(call)

    async def shut(self) -> None:
        while self._unasked:
            with contextlib.suppress(KeyError):  # another thread has popped the last one
                call = self._unasked.popitem()[0]
                call.deadline = self.clock.now() + self._deadline  # it has not begun
                self.engine.open(call)  # to be told that it is too late
        await super().shut()

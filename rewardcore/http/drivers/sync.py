"""The sync mode: the loop driver with one place, whose calls begin when somebody waits for them.

It is the baseline that every speed-up is measured against, and the simplest way to judge a few samples.
"""

from __future__ import annotations

import weakref
from typing import Any

from ...calls import Batch, Call
from ...failures import RewardcoreError
from .loop import LoopDriver


class SyncDriver(LoopDriver):
    def __init__(self, deadline: float, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._deadline = deadline
        self._unasked: weakref.WeakSet[Call] = weakref.WeakSet()

    def begin(self, call: Call) -> None:
        with self._posting:
            if self._closed:
                raise RewardcoreError("this judge is closed; open another")
            self._unasked.add(call)

    def begin_now(self, call: Call) -> None:
        super().begin(call)

    def wait(self, batch: Batch, timeout: float | None) -> bool:
        with self._posting:
            begins = batch.call in self._unasked
            self._unasked.discard(batch.call)
        if begins:
            batch.call.deadline = self.clock.now() + self._deadline
            super().begin(batch.call)
        return super().wait(batch, timeout)

    def abandon(self, call: Call) -> None:
        self._unasked.discard(call)
        super().abandon(call)

    async def shut(self) -> None:
        for call in list(self._unasked):
            call.deadline = self.clock.now() + self._deadline  # it has not begun
            self.engine.open(call)  # to be told that it is too late
        await super().shut()

"""Crews: how a mode drives requests, in one process; and the batches that they work on.

A crew takes calls on and tells their verdicts. It never outlives its process: after a fork a judge hires another.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable

from .clock import Clock
from .engine import Call
from .failures import RewardcoreError
from .sample import Sample
from .stats import Stats
from .verdict import Verdict


class Crew(ABC):
    """How one mode drives requests, in one process."""

    def __init__(self, clock: Clock) -> None:
        self.pid = os.getpid()
        self.clock = clock

    @abstractmethod
    def begin(self, call: Call) -> None:
        """Take the call on and return at once."""

    @abstractmethod
    def abandon(self, call: Call) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def stats(self) -> Stats: ...

    def wait(self, batch: Batch, timeout: float | None) -> None:
        """Block until the batch is done; raises TimeoutError."""
        batch.future.result(timeout)


class Batch:
    """The verdicts of one list of samples, in input order, and the future that says when all are in."""

    def __init__(self, samples: list[tuple[int, Sample]], deadline: float) -> None:
        self.future: concurrent.futures.Future[list[Verdict]] = concurrent.futures.Future()
        self._verdicts: list[Verdict | None] = [None] * len(samples)
        self.call = Call(samples, deadline, self._verdicts.__setitem__, self._finish)
        if not samples:
            self._finish()

    def _finish(self) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # cancelled while the last verdict came
            self.future.set_result(self._verdicts)  # type: ignore[arg-type]  # every place is filled by now


class Pending:
    """A batch that is being judged. `waited` is how long `result` has blocked its callers so far."""

    def __init__(self, batch: Batch, crew: Crew, blocked: Callable[[float], None]) -> None:
        self.waited = 0.0
        self._batch = batch
        self._crew = crew
        self._blocked = blocked

    def done(self) -> bool:
        return self._batch.future.done()

    def cancel(self) -> None:
        """Stop asking for this batch; replies already in the air still reach the cache while the judge is open."""
        self._crew.abandon(self._batch.call)
        self._batch.future.cancel()

    def result(self, timeout: float | None = None) -> list[Verdict]:
        """The verdicts in input order. A TimeoutError leaves the batch as it is: ask again."""
        if self._crew.pid != os.getpid():
            raise RewardcoreError(f"this batch was submitted in process {self._crew.pid}; submit it in this one again")
        future, clock = self._batch.future, self._crew.clock
        if not future.done():
            started = clock.now()
            try:
                self._crew.wait(self._batch, timeout)
            except TimeoutError:
                raise TimeoutError(f"the batch was not judged within {timeout} s; it goes on") from None
            except BaseException:
                self.cancel()
                raise
            finally:
                seconds = clock.now() - started
                self.waited += seconds
                self._blocked(seconds)
        return future.result()

    async def wait_in_loop(self) -> list[Verdict]:
        """`result` for a running loop; cancelling it cancels the batch."""
        try:
            return await asyncio.wrap_future(self._batch.future)
        except asyncio.CancelledError:
            self.cancel()
            raise

"""A stream: samples of any number on their way, a few rounds ahead of whoever reads their verdicts.

It waits for nothing: `Judge.astream` and `Judge.stream` are two ways to wait for it. Verdicts come in from the
judge's one thread; everything else happens in the reader's, the tally of what was lost too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Self

from .calls import Call, Driver, Run, nobody
from .failures import RewardcoreError
from .notices import Losses, Tally
from .sample import Sample
from .verdict import Verdict


class Stream:
    """`take`, wait until something has `arrived`, and `receive` it, until `take` says that it is over.

    At most `rounds` chunks are on their way or unread. Leaving it, in whatever way, abandons what is not judged yet.
    """

    def __init__(
        self,
        samples: Iterator[tuple[int, Sample]],
        driver: Driver,
        deadline: Callable[[], float],
        losses: Losses,
        wake: Callable[[], object],
        chunk_size: int,
        rounds: int,
    ) -> None:
        self._samples = samples
        self._driver = driver
        self._deadline = deadline
        self._losses = losses
        self._wake = wake
        self._chunk_size = chunk_size
        self._room = chunk_size * rounds
        self._run = Run()
        self._calls: deque[Call] = deque()
        self._tally = Tally()
        self._taken, self._received, self._is_exhausted = 0, 0, False
        self.arrived: deque[tuple[int, Verdict]] = deque()

    def take(self) -> bool:
        """Take as many samples as there is room for; False when every verdict was received and there are no more."""
        if self._driver.pid != os.getpid():
            raise RewardcoreError(f"this stream began in process {self._driver.pid}; begin one in this process")
        while self._calls and not self._calls[0].waiting:
            self._calls.popleft()
        while not self._is_exhausted and self._taken - self._received <= self._room - self._chunk_size:
            chunk = list(islice(self._samples, self._chunk_size))
            self._is_exhausted = len(chunk) < self._chunk_size
            if chunk:
                self._taken += len(chunk)
                call = Call(chunk, self._deadline(), self._tell, nobody, self._run)
                self._calls.append(call)
                self._driver.begin(call)
                self._driver.wanted(call)
        return self._received < self._taken

    def receive(self) -> tuple[int, Verdict]:
        self._received += 1
        index, verdict = self.arrived.popleft()
        self._tally.add(verdict)
        return index, verdict

    def _tell(self, index: int, verdict: Verdict) -> None:
        """In the judge's one thread; one wake-up of the reader for however many verdicts have gathered."""
        self.arrived.append((index, verdict))
        if len(self.arrived) == 1:
            self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._driver.pid == os.getpid():  # after a fork, the calls are the parent's
            for call in self._calls:
                self._driver.abandon(call)
            self._driver.release(self._run)
            while self.arrived:  # unread
                self.receive()
            self._losses.ended(self._tally, self._taken)

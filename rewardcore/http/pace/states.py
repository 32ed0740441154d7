"""The states of the pace. Each says how many may be in flight (`window`) and how many a second may leave (`rate`).

A state grows by itself, reply by reply; why one follows another is the table's in `machine.py` to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

AUTO_START = 8
#: Where nothing is known, places double each so many seconds, up to so many.
_DOUBLING, _BLIND = 0.12, 512
#: Seconds: the first pause of an endpoint that has never answered, and the longest of all.
FIRST_PAUSE, LONGEST_PAUSE = 0.125, 8.0
#: Each pause is so much longer than the one before, and jitter moves it so far.
_GROWTH, _JITTER = 1.5, 0.25
#: Refused at the same number again, one place more is tried after twice as many replies, up to so many.
_MOST_CAUTION = 256
#: The first growth of a rate, and the quickest; and what it loses by a refusal, and by one of many.
_SLOW_STEP, _QUICK_STEP, _ONE, _OF_MANY = 1 / 64, 0.25, 0.98, 0.92
#: Evenly spaced departures are this much quicker than the window asks for, so that the window stays full.
_EVEN = 1.1
_TICK = 1e-9


@dataclass(slots=True)
class Start:
    """ "auto" before anybody has answered: places double by time."""

    window: int
    ceiling: int
    next_place: float = -math.inf
    rate = math.inf

    def wait(self, now: float) -> float:
        """Seconds until the next place, where all are taken."""
        end = min(_BLIND, self.ceiling)
        if self.next_place == -math.inf:
            self.next_place = now + self._seconds_of_a_place
        is_time = self.next_place <= now + _TICK and self.window < end
        while self.next_place <= now + _TICK and self.window < end:
            self.window += 1
            self.next_place += self._seconds_of_a_place
        return 0.0 if is_time else self.next_place - now if self.window < end else math.inf

    @property
    def _seconds_of_a_place(self) -> float:
        return _DOUBLING * math.log2(1 + 1 / self.window)


@dataclass(slots=True)
class Window:
    """So many at once. Below `goal` each reply brings a place; above it one more is tried now and then.

    `proven` were in flight when something got through; it was refused at `bound` the last time, when departure
    `cut_after` had left.
    """

    window: int
    ceiling: int
    goal: int = 0
    bound: int = 0
    proven: int = 0
    caution: int = 1
    progress: int = 0
    step: float = 0.0
    is_even: bool = False
    cut_after: int = 0
    rate = math.inf

    def spacing(self, round_trip: float) -> float:
        return round_trip / self.window / _EVEN if self.is_even else 0.0

    def got_through(self, others: int) -> bool:
        """Whether it has grown beyond what was known."""
        # A reply may land while one that will be refused is in the air: no more than the known limit is proven.
        self.proven = max(self.proven, min(others + 1, self.bound or self.window))
        if self.window < self.goal:
            self.window += 1
            return False
        self.progress += self.window < self.ceiling
        if self.progress < max(self.caution, self.window):
            return False
        self.bound = self.bound and self.window
        self.window = self.goal = min(self.ceiling, self.window + max(1, int(self.step * self.window)))
        self.caution = 1 if self.step else self.caution
        self.progress, self.step = 0, min(1.0, 2 * self.step or 0.25)
        return True

    def refused_at(self, others: int, sent: int, rounds: float) -> None:
        """More than `others` are not borne. One that asks to wait for so many rounds of replies makes a try dearer."""
        is_same = abs(others - self.bound) <= max(1, self.bound // 32)
        most = max(_MOST_CAUTION, 2 * others)
        self.caution = max(min(most, 2 * self.caution), int(rounds * others)) if is_same else 1
        self.window = self.goal = self.bound = self.proven = others
        self.progress, self.step, self.is_even, self.cut_after = 0, 0.0, True, sent

    def halve(self, others: int, sent: int) -> None:
        """Nothing more gets through, and what is in the air does not tell how many are borne."""
        self.goal = max(self.goal, self.window)
        self.window = self.proven = max(1, others // 2)
        self.cut_after, self.is_even = sent, True


@dataclass(slots=True)
class Rate:
    """So many a second, evenly spaced; tried higher after some replies, and higher again, until it is refused.

    `most` is what the endpoint's own headers say; at `borne` something got through; `before` is what was allowed when
    refusals here and there were taken for a rate.
    """

    rate: float
    window: int
    before: Window | None = None
    most: float = math.inf
    borne: float = 0.0
    step: float = _SLOW_STEP
    progress: int = 0
    cut_after: int = 0

    def spacing(self, round_trip: float) -> float:
        return 1 / self.rate

    def got_through(self, round_trip: float) -> None:
        self.borne = self.rate
        self.progress += 1
        if self.progress >= max(8, self.rate * round_trip / 2):
            self.progress = 0
            self.rate = max(self.rate, min(self.most, self.rate * (1 + self.step)))
            self.step = min(_QUICK_STEP, 2 * self.step)

    def refused(self, is_one_of_many: bool) -> None:
        self.rate = max(1 / LONGEST_PAUSE, self.rate * (_OF_MANY if is_one_of_many else _ONE))
        self.progress, self.step = 0, _SLOW_STEP


@dataclass(slots=True)
class Probing:
    """Nothing gets through that left after `cut_after`: one at a time, after growing pauses.

    `before` is what was allowed until then, when `began` had left.
    """

    before: Start | Window | Rate
    began: int
    pause: float
    cut_after: int = 0
    window = 1

    @property
    def rate(self) -> float:
        return 1 / self.pause

    def refused(self, draw: float) -> float:
        """The pause before the next probe."""
        pause = self.pause * (1 + _JITTER * (2 * draw - 1))
        self.pause = min(LONGEST_PAUSE, _GROWTH * self.pause)
        return pause

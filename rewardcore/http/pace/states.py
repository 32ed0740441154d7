"""The states of the pace: what each allows, and what it has counted. `TRANSITIONS` is every way between them, and why.

Each says how many may be in flight (`window`), how long after a departure the next one may leave (`spacing`), and what
share of the places may fail in a row by accident.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

AUTO_START = 8
#: Where nothing is known, places double each so many seconds, up to so many.
_DOUBLING, _BLIND = 0.12, 512
#: Seconds: the first pause of an endpoint that has never answered, and the longest of all.
FIRST_PAUSE, LONGEST_PAUSE = 0.125, 8.0
#: Each pause is so much longer than the one before, and jitter moves it so far.
_GROWTH, _JITTER = 1.3, 0.25
#: After a refusal departures are spaced this much closer than the window asks for, so that it stays full.
_EVEN = 1.1
#: One in so many replies' time, at the least.
_FEWEST = 1 / 64
#: More places are tried after so many replies at least; where they were refused twice, after up to so many.
_FEW, _MOST_CAUTION = 8, 256


@dataclass(slots=True)
class Start:
    """ "auto" before anybody has answered: places double by time."""

    accident: ClassVar = 1 / 4
    window: int
    ceiling: int

    def spacing(self, in_flight: int, latency: float) -> float:
        if in_flight < self.window:
            return 0.0
        self.window = min(_BLIND, self.ceiling, in_flight + 1)
        return _DOUBLING * math.log2(1 + 1 / in_flight)


@dataclass(slots=True)
class Window:
    """So many at once; once refused, evenly spaced. Fewer than one is one at a time, with pauses.

    `good` got through at once since departure `cut_after`. `credit` more replies earn a `step` of all places, one at
    the least; `caution` is how many replies one place more costs, where it was refused before.
    """

    accident: ClassVar = 1 / 16
    places: float
    ceiling: int
    good: float = 0.0
    step: float = 0.0
    credit: float = 0.0
    caution: float = 1.0
    cut_after: int = 0
    resumed_after: int = 0

    @property
    def window(self) -> int:
        return int(self.places) or 1

    def spacing(self, in_flight: int, latency: float) -> float:
        return latency / self.places / (_EVEN if self.places >= 1 else 1.0) if self.cut_after else 0.0

    def got_through(self, in_flight: int) -> bool:
        """Whether more is tried now than was borne before."""
        if self.good == self.places == self.ceiling:
            return False
        if not self.step:  # else a reply may land while one that will be refused is in the air
            self.good = max(self.good, min(in_flight, self.places))
        if not self.cut_after:
            self.places = min(self.ceiling, self.places + 1)
            return False
        self.credit -= 1
        if self.credit > 0 or self.places >= self.ceiling:
            return False
        self.good = self.places
        self.places = min(self.ceiling, self.places + max(grain(self.places), self.step * self.places))
        self.credit, self.step = max(self.places, _FEW), min(1.0, 2 * self.step or 1 / 16)
        return True

    def refused_at(self, places: float, sent: int, rounds: float = 0.0) -> None:
        """More are not borne. One that asks to wait for so many rounds of replies makes a try dearer."""
        is_same = self.cut_after and abs(places - self.good) <= max(grain(places), self.good / 32)
        most = max(_MOST_CAUTION, 2 * places)
        self.caution = max(min(most, 2 * self.caution), rounds * places) if is_same else 1.0
        self.places = self.good = max(_FEWEST, places)
        self.cut_after = sent
        self.credit, self.step = max(places, _FEW, self.caution), 0.0

    def resumed(self, sent: int) -> Window:
        """After an outage what is borne is not known."""
        self.good = self.step = 0.0
        self.cut_after = self.resumed_after = sent
        return self


def grain(places: float) -> float:
    """What is tried at a time: a place, or a part of one."""
    return 1.0 if places >= 1 else places / 8


@dataclass(slots=True)
class Probing:
    """Nothing gets through that left after `cut_after`: one at a time, after growing pauses.

    `before` is what was allowed until then; of these, `old` are in the air yet, or what was sent in their place and has
    not failed: at a limit that has sunk, it will be answered.
    """

    accident: ClassVar = math.inf
    before: Window
    pause: float
    old: int
    cut_after: int = 0
    probes: int = 0

    @property
    def window(self) -> int:
        return self.old + 1

    def spacing(self, in_flight: int, latency: float) -> float:
        self.probes += 1
        return 0.0

    def landed(self, others: int) -> None:
        self.old = min(self.old, others)

    def failed(self, sent: int, draw: float) -> float:
        """The pause before the next probe."""
        pause = self.pause * (1 + _JITTER * (2 * draw - 1))
        self.cut_after, self.pause = sent, min(LONGEST_PAUSE, _GROWTH * self.pause)
        return pause


State = Start | Window | Probing

#: The next state, and the reason for people. Nothing else leads anywhere.
TRANSITIONS: dict[tuple[type, str], tuple[type, str]] = {
    (Start, "answered"): (Window, "the first answers are in"),
    (Start, "limit"): (Window, "refused with so many in flight"),
    (Start, "silent"): (Probing, "nothing gets through"),
    (Window, "limit"): (Window, "refused with so many in flight"),
    (Window, "grown"): (Window, "so many were borne: more are tried"),
    (Window, "knee"): (Window, "replies are slow: as many tokens a second with another number in flight?"),
    (Window, "trial"): (Window, "some are refused: are half as many?"),
    (Window, "helped"): (Window, "none were refused at half: as many as were accepted"),
    (Window, "chance"): (Window, "as many were refused at half: that is chance, and overlooked"),
    (Window, "silent"): (Probing, "nothing gets through"),
    (Probing, "answered"): (Window, "it answers again: as before"),
}

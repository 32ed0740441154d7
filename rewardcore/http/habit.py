"""Refusals that no slowness cures: a busy endpoint that turns away one request in ten, however little it is asked.

A limit refuses less when it is asked less; a habit does not. So the share that is refused is kept for each octave of
the pace, and when one that is half as fast is refused as often, the cuts between were in vain: they are taken back, and
from then on so many refusals are excused, in whatever order they come. Pure logic; what a refusal that is not excused
means is `pace.py`'s to say, and where more than half is refused it always is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

#: So many departures, and among them so many refusals, tell a share.
_ENOUGH, _REFUSALS = 16, 4
#: Fewer departures say nothing against one.
_FEW = 8
#: A habit's refusals come in bunches: half as many again are excused, and so many in advance.
_MARGIN, _ADVANCE = 1.5, 6.0
#: After so many departures the older ones count half.
_MEMORY = 512
#: How far a pace must have been cut to tell, and at most, where less has told wrongly.
_DEPTH, _DEEPEST = 2, 32


class Standing(NamedTuple):
    """What is allowed: so many in flight, so many a second, and how many a second that makes."""

    window: int
    rate: float
    pace: float


@dataclass(slots=True)
class Octave:
    """What left at a pace between a power of two and the next, and how much of it was refused."""

    highest: Standing
    departed: float = 0.0
    refused: float = 0.0

    @property
    def is_told(self) -> bool:
        return self.departed >= _ENOUGH and self.refused >= _REFUSALS and 2 * self.refused <= self.departed

    def is_no_worse_than(self, slower: Octave) -> bool:
        return self.refused * slower.departed <= 2 * slower.refused * self.departed


class Trial:
    """From a first refusal on, until all of them are forgotten."""

    def __init__(self, now: Standing, departed: int) -> None:
        self._octave = self._before = _octave(now)
        self._since = 0  # what left later did so at the present octave's pace
        self._octaves = {self._octave: Octave(now, departed)}
        self._weight = departed

    def departed(self, number: int, now: Standing) -> None:
        if (octave := _octave(now)) != self._octave:
            self._octave, self._before, self._since = octave, self._octave, number - 1
        found = self._octaves.get(octave)
        if found is None:
            found = self._octaves[octave] = Octave(now)
        elif now.pace > found.highest.pace:
            found.highest = now
        found.departed += 1.0
        self._weight += 1
        if self._weight > _MEMORY:
            self._weight //= 2
            for each in self._octaves.values():
                each.departed, each.refused = each.departed / 2, each.refused / 2

    @property
    def is_over(self) -> bool:
        return sum(each.refused for each in self._octaves.values()) < 0.5

    def refused(self, number: int, now: Standing, depth: int) -> tuple[float, Standing] | None:
        """The share that is refused whatever the pace, and what to take back; None where that is not known."""
        self._octaves[self._octave if number > self._since else self._before].refused += 1.0
        present, slower = _octave(now), Octave(now)
        best, share = None, 0.0
        for octave in sorted(self._octaves):
            here = self._octaves[octave]
            if best is not None or (octave > present and slower.is_told):
                if here.departed < _FEW:
                    continue
                if not here.is_no_worse_than(slower):
                    break
                best, share = here.highest, slower.refused / slower.departed
            else:
                slower.departed, slower.refused = slower.departed + here.departed, slower.refused + here.refused
        return (share, best) if best is not None and best.pace >= depth * now.pace else None


class Habit:
    """`share` of all requests are refused whatever is done; 0 where none are."""

    def __init__(self) -> None:
        self.share = 0.0
        self._most = 0.0
        self._credit = 0.0
        self._learnt_at = self._refused = 0
        self._depth = _DEPTH
        self._trial: Trial | None = None

    def departed(self, number: int, now: Standing, in_flight: int) -> None:
        if self.share:
            expected = _MARGIN * self.share
            self._credit = min(self._credit + expected, _ADVANCE + 2 * expected * in_flight)
            self.share -= self.share / _MEMORY
        if self._trial is not None:
            self._trial.departed(number, now)
            if number % 64 == 0 and self._trial.is_over:
                self._trial = None

    def excuses(self, sent: int) -> bool:
        """A refusal came: is it one of those that were to be expected?"""
        if not self.share:
            return False
        self._refused += 1
        if self._credit >= 1.0:
            self._credit -= 1.0
            self.share = min(self._most, self.share + 1 / _MEMORY)
            return True
        if self._refused > 2 * self.share * (sent - self._learnt_at) + _ADVANCE:  # it was none
            self.share, self._depth = 0.0, min(_DEEPEST, 2 * self._depth)
        return False

    def refused(self, number: int, now: Standing, in_flight: int, sent: int) -> Standing | None:
        """One that is not excused; a Standing where the cuts were in vain, and it is to be had again."""
        if self._trial is None:
            self._trial = Trial(now, in_flight + 1)
        found = self._trial.refused(number, now, self._depth)
        if found is None:
            return None
        (self.share, borne), self._trial = found, None
        self._most, self._credit, self._learnt_at, self._refused = 1.25 * self.share, _ADVANCE, sent, 0
        return borne


def _octave(standing: Standing) -> int:
    return math.frexp(standing.pace)[1]

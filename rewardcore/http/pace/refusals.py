"""What failures mean: a row of them is a limit or an outage; refusals here and there are the pace's fault, or chance.

A failure by itself says nothing. Departures are numbered, so that what is still in the air counts as well: a burst of
which a third was refused here and there met no limit; one of which the last third was refused did.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, replace

from .states import Window

#: Failures that nothing got through between: so many are no accident, if they are such a share of what left meanwhile.
_IN_A_ROW, _MOSTLY, _IMPROBABLE = 6, 0.75, 1e-4
#: So many at the least, and nobody takes their place before it is known what they mean.
_SUSPECT = 12
#: Half is tried where so many refusals are such a share of what left.
_FEW, _MANY, _REMEMBERED = 8, 1 / 8, 16
#: Of a trial's first round so many outcomes at most tell of what was before it.
_FIRST_ROUND = 24
#: In a trial so many refusals by chance are waited for; at less than this share of them it has helped.
_EXPECTED, _HELPED = 3.5, 0.25
#: Of what was in the air when some were refused, this much is asked after a trial that has helped.
_BORNE = 0.92
#: Chance explains so many times its share and so much more, up to so much.
_TIMES, _MORE, _MOST = 2.0, 0.15, 0.65


class Row:
    """The failures that nothing which left later has got through after; `share` of all fail by accident."""

    def __init__(self) -> None:
        self._numbers: list[int] = []  # a heap
        self.last_good = self._explained = 0
        self._share = 0.0

    def good(self, number: int) -> None:
        if number > self.last_good:
            self.last_good = number
        self._share -= self._share / 32
        while self._numbers and self._numbers[0] <= number:
            heapq.heappop(self._numbers)
            self._share += (1 - self._share) / 32

    def failed(self, number: int) -> None:
        if number > max(self.last_good, self._explained):
            heapq.heappush(self._numbers, number)

    def explain(self, number: int) -> None:
        """What has failed until this departure, or will, has its reason."""
        self._explained = number
        self._numbers.clear()

    def is_one(self, sent: int) -> bool:
        """Too many for an accident, and most of what has left since the first of them."""
        numbers, least = self._numbers, float(_IN_A_ROW)
        if self._share:  # what chance alone would make now and then is no row
            least = max(least, math.log(_IMPROBABLE) / math.log(self._share))
        return len(numbers) >= least and len(numbers) >= _MOSTLY * (sent - numbers[0] + 1)

    def is_suspect(self, window: int, accident: float) -> bool:
        """Twice as many as fail by accident before something gets through: what is in the air is heard first."""
        by_chance = 2 * self._share / (1 - self._share)
        return len(self._numbers) >= max(_SUSPECT, window * max(accident, by_chance))


@dataclass(slots=True)
class Trial:
    """Half is asked, and counted from departure `first`; `before` is what was allowed, and was refused by `share`."""

    before: Window
    first: int
    share: float
    refused: int = 0

    @property
    def last(self) -> int:
        return self.first + math.ceil(_EXPECTED / self.share)


class Chance:
    """Refused here and there: is that the pace? Half is asked for a while, to see.

    Where hardly any is refused at half, it is. Where as many are refused as before, the cut is taken back, and refusals
    are overlooked as long as chance explains them: `share` of all, 0.0 where that is not believed.
    """

    def __init__(self) -> None:
        self.share = 0.0
        self.trial: Trial | None = None
        self._refused: deque[int] = deque(maxlen=_REMEMBERED)

    def forget(self) -> Window | None:
        """What was refused until now has its reason; what was allowed before a trial that this ends."""
        trial, self.trial = self.trial, None
        self._refused.clear()
        return trial.before if trial is not None else None

    def overlooks(self, sent: int) -> bool:
        """Whether chance explains the latest refusal; where it does not, chance is no longer believed in."""
        if self._among(sent, _REMEMBERED) > min(_MOST, _TIMES * self.share + _MORE):
            self.share = 0.0
        return self.share > 0.0

    def begin(self, state: Window, others: int, sent: int) -> Window | None:
        """One more is refused: what to ask now, if that is too many."""
        share = self._among(sent, _FEW)
        if self.trial is not None or share < _MANY:
            return None
        places = min(others + 1, state.places) if state.places > 1 else state.places
        half = replace(state, places=places / 2, cut_after=sent)
        self.trial = Trial(state, sent + min(_FIRST_ROUND, half.window), share)
        return half

    def heard(self, number: int, is_refused: bool, state: Window, sent: int) -> tuple[str, Window] | None:
        """What this outcome ends a trial with, and the state that follows."""
        if is_refused and number > state.cut_after:
            self._refused.append(number)
        trial = self.trial
        if trial is None:
            return None
        trial.refused += is_refused and trial.first < number <= trial.last
        if is_refused or number <= trial.last:  # what is accepted is heard later
            return None
        self.forget()
        before, found = trial.before, trial.refused / (trial.last - trial.first)
        by_pace = max(0.0, 2 * trial.share - 1)  # what is still refused at half, if it is the pace
        if found > by_pace + _HELPED * (trial.share - by_pace):
            self.share = found
            return "chance", before
        before.refused_at(2 * state.places * (_BORNE if state.places > 1 else max(1 / 8, 1 - trial.share)), sent)
        before.credit *= 2  # a trial is dear
        return "helped", before

    def _among(self, sent: int, refusals: int) -> float:
        """The share of so many latest refusals in what has left since the first of them."""
        known = len(self._refused) >= refusals
        return refusals / (sent - self._refused[-refusals] + 1) if known else 0.0

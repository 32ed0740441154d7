"""What a failure means: a row of them is an outage or a limit; as many of them however few are asked is chance.

A failure by itself says nothing. Departures are numbered, so that what is still in the air counts as well: a burst of
which a third was refused here and there is no limit, one of which the last third was refused is. And every cut for
refusals here and there is a trial: where it does not lower their share, it was the wrong answer, and is taken back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

#: Failures that nothing got through between: so many are no accident, if hardly any between them is still in the air.
_IN_A_ROW, _NEARLY_ALL = 6, 0.9
#: A limit refuses at least this share of what leaves beyond it.
_BEYOND = 0.75
#: A trial is worth while where so many refusals were such a share of what left; it asks for this share of what was asked.
_FEW, _MANY, LESS = 4, 1 / 8, 0.5
#: So many refusals by chance were to be expected in a trial before it is over.
_GRACE, _EXPECTED, _HELPED = 8, 3.5, 0.25
#: A belief is over where more is refused than so many times its share and so much more, or after so improbable a row.
_RECENT, _TIMES, _MORE, _MOST, _IMPROBABLE = 16, 2.0, 0.15, 0.65, 1e-4


LEAST=1
EIGHT=8
HALF=.5
ROUND=24
class Row:
    """The failures that nothing which left later has got through after."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque(maxlen=64)
        self.last_good = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def good(self, number: int) -> None:
        self.last_good = max(self.last_good, number)
        if self._numbers:
            left = [failed for failed in self._numbers if failed > number]
            if len(left) < len(self._numbers):
                self._numbers = deque(left, maxlen=64)

    def failed(self, number: int) -> None:
        if number > self.last_good:
            self._numbers.append(number)

    def is_limit(self, sent: int) -> bool:
        """Most of what has left since the first of them has failed."""
        return len(self) >= _IN_A_ROW and len(self) >= _BEYOND * (sent - min(self._numbers) + 1)

    def is_silent(self, in_a_row: int = _IN_A_ROW) -> bool:
        """Nothing gets through: nearly all that left between the first and the last of them has failed."""
        numbers = self._numbers
        return len(self) >= in_a_row and len(self) >= _NEARLY_ALL * (max(numbers) - min(numbers) + 1)


@dataclass(slots=True)
class Trial:
    """Less is asked since departure `after`, to see whether less is refused; `before` is what was allowed."""

    before: Any
    after: int
    first: int
    share: float
    less: float
    borne: float  # what was accepted in a second since the last trial, if that had helped
    refused: int = 0


class Chance:
    """`share` of all requests is refused by chance; 0.0 where that is not believed."""

    def __init__(self) -> None:
        self.share = 0.0
        self.trial: Trial | None = None
        self._refused: deque[int] = deque(maxlen=_RECENT)

    def among(self, sent: int, refusals: int) -> float:
        """The share of the latest refusals among what has left since the first of them."""
        if len(self._refused) < refusals:
            return 0.0
        return refusals / (sent - self._refused[-refusals] + 1)

    def is_much(self, sent: int) -> bool:
        return self.among(sent, 2) >= _MANY

    def is_worth_a_trial(self, sent: int) -> bool:
        is_news = len(self._refused) < _RECENT or self.among(sent, _RECENT) >= _MANY / 2
        return self.trial is None and is_news and _MANY <= self.among(sent, _FEW) < _BEYOND

    def forget(self) -> None:
        """A limit was met, or an outage: what was refused until now has its reason."""
        self._refused.clear()
        self.trial = None

    def begin(self, before: Any, first: int, sent: int, less: float, borne: float) -> None:
        self._began = sent
        self.trial = Trial(before, sent, first, self.among(sent, _FEW), less, borne)

    def heard(self, number: int, is_refused: bool, sent: int) -> Trial | None:
        """The trial that ends with this outcome; `share` says what it has shown."""
        if is_refused:
            self._refused.append(number)
        trial = self.trial
        if trial is None:
            return None
        size = math.ceil(_EXPECTED / trial.share)
        first = trial.first
        trial.refused += is_refused and first < number <= first + size
        is_worse = is_refused and number > trial.after and self.among(sent, EIGHT) >= HALF
        if (is_refused or number <= first + size) and not is_worse:
            return None  # what was accepted is heard later than what was refused
        self.trial = None
        found = self.among(sent, EIGHT) if is_worse else trial.refused / size
        by_pace = max(0.0, 1 - (1 - trial.share) / trial.less)
        if trial.refused >= LEAST and found > by_pace + _HELPED * (trial.share - by_pace):
            if self._explains(trial.share, found):
                self.share = found
            else:  # far more than before: it has only begun
                self.trial = Trial(trial.before, sent, sent, found, trial.less, trial.borne)
        self._refused.clear()
        return trial

    def _explains(self, share: float, found: float) -> bool:
        return found <= min(_MOST, _TIMES * share + _MORE)

    def overlooks(self, row: Row, sent: int) -> bool:
        """Whether chance explains it, as far as one believes in chance."""
        if not self.share:
            return False
        in_a_row, improbable = 1, self.share
        while improbable > _IMPROBABLE:
            in_a_row, improbable = in_a_row + 1, improbable * self.share
        if row.is_silent(in_a_row) or not self._explains(self.share, self.among(sent, _RECENT)):
            self.share = 0.0
        return bool(self.share)

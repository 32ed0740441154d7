"""What a failure means: a row of them is a limit or an outage; as many of them however few are asked is chance.

A failure by itself says nothing. Departures are numbered, so that what is still in the air counts as well: a burst of
which a third was refused here and there met no limit; one of which the last third was refused did. And whoever is
refused here and there tries half: where that does not lower the share of refusals, it was chance, and is taken back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

#: Failures that nothing got through between: so many are no accident, if they are such a share of what left meanwhile.
IN_A_ROW, _MOSTLY, _NEARLY_ALL = 6, 0.75, 0.9
#: Where answers come in another order, some are always in the air between them: then so many, and such a share.
_MANY_FAILED, _WITH_MANY = 16, 0.6
#: Half is tried where so many refusals are such a share of what left, and so many not less than half of that share.
_FEW, _MANY, _REMEMBERED = 4, 1 / 8, 16
#: In a trial so many refusals by chance are waited for; at less than this share of them it has helped.
_EXPECTED, _HELPED = 3.5, 0.25
#: So many refusals among twice as many departures need no longer trial.
_WORSE = 8
#: Chance explains so many times its share and so much more, up to so much, and no row that is as improbable as this.
_TIMES, _MORE, _MOST, _IMPROBABLE = 2.0, 0.15, 0.65, 1e-4

S = TypeVar("S")


class Row:
    """The failures that nothing which left later has got through after."""

    def __init__(self) -> None:
        self._numbers: deque[int] = deque(maxlen=64)
        self.last_good = 0

    def good(self, number: int) -> None:
        self.last_good = max(self.last_good, number)
        while self._numbers and min(self._numbers) <= number:
            self._numbers.remove(min(self._numbers))

    def failed(self, number: int) -> None:
        if number > self.last_good:
            self._numbers.append(number)

    def is_limit(self, sent: int) -> bool:
        """Most of what has left since the first of them has failed."""
        return self._is_row(IN_A_ROW, _MOSTLY, sent)

    def is_silent(self, least: int = IN_A_ROW) -> bool:
        """Nothing gets through: nearly all that left between the first and the last of them has failed."""
        last = max(self._numbers, default=0)
        return self._is_row(least, _NEARLY_ALL, last) or self._is_row(_MANY_FAILED, _WITH_MANY, last)

    def _is_row(self, least: int, share: float, until: int) -> bool:
        numbers = self._numbers
        return len(numbers) >= least and len(numbers) >= share * (until - min(numbers) + 1)


@dataclass(slots=True)
class Trial(Generic[S]):
    """Half is asked since departure `after`, and counted from `first`; `before` is what was allowed, and `borne` what
    was accepted in a second since the last trial, where that is known."""

    before: S
    after: int
    first: int
    share: float
    borne: float
    refused: int = 0


class Chance(Generic[S]):
    """`share` of all requests is refused by chance; 0.0 where that is not believed."""

    def __init__(self) -> None:
        self.share = 0.0
        self.trial: Trial[S] | None = None
        self._refused: deque[int] = deque(maxlen=_REMEMBERED)

    def among(self, sent: int, refusals: int) -> float:
        """The share of so many latest refusals in what has left since the first of them."""
        known = len(self._refused) >= refusals
        return refusals / (sent - self._refused[-refusals] + 1) if known else 0.0

    def is_suspected(self, sent: int) -> bool:
        """Refused here and there, and not only now and then."""
        is_news = len(self._refused) < _REMEMBERED or self.among(sent, _REMEMBERED) >= _MANY / 2
        return self.trial is None and is_news and _MANY <= self.among(sent, _FEW) < _MOSTLY

    def forget(self) -> None:
        """An outage: what was refused until now has its reason."""
        self._refused.clear()
        self.trial = None

    def begin(self, before: S, sent: int, first: int, borne: float) -> None:
        self.trial = Trial(before, sent, first, self.among(sent, _FEW), borne)

    def heard(self, number: int, is_refused: bool, sent: int) -> Trial[S] | None:
        """The trial that this outcome ends: `share` says if it was chance, and another `trial` that it is worse."""
        if is_refused:
            self._refused.append(number)
        if (trial := self.trial) is None:
            return None
        last = trial.first + math.ceil(_EXPECTED / trial.share)
        trial.refused += is_refused and trial.first < number <= last
        is_worse = is_refused and number > trial.after and self.among(sent, _WORSE) >= 0.5
        if (is_refused or number <= last) and not is_worse:  # what is accepted is heard later than what is refused
            return None
        self.trial = None
        found = self.among(sent, _WORSE) if is_worse else trial.refused / (last - trial.first)
        by_pace = max(0.0, 2 * trial.share - 1)  # what is still refused at half, if it is the pace
        if found > by_pace + _HELPED * (trial.share - by_pace):
            if _explains(trial.share, found):
                self.share = found
            else:
                self.trial = Trial(trial.before, sent, sent, found, trial.borne)
        self._refused.clear()
        return trial

    def overlooks(self, row: Row, sent: int) -> bool:
        """Whether chance explains the latest refusal; where it does not, chance is no longer believed in."""
        if self.share:
            improbable = math.ceil(math.log(_IMPROBABLE) / math.log(self.share))
            if row.is_silent(improbable) or not _explains(self.share, self.among(sent, _REMEMBERED)):
                self.share = 0.0
        return bool(self.share)


def _explains(share: float, found: float) -> bool:
    return found <= min(_MOST, _TIMES * share + _MORE)

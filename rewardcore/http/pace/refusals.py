"""What a row of failures means: a limit, or an outage.

A failure by itself says nothing. Departures are numbered, so that what is still in the air counts as well: a burst of
which a third was refused here and there met no limit; one of which the last third was refused did.
"""

from __future__ import annotations

from collections import deque

#: Failures that nothing got through between: so many are no accident, if they are such a share of what left meanwhile.
IN_A_ROW, MOSTLY, _NEARLY_ALL = 6, 0.75, 0.9
#: Where answers come in another order, some are always in the air between them: then so many, and such a share.
_MANY_FAILED, _WITH_MANY = 16, 0.6


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
        return self._is_row(IN_A_ROW, MOSTLY, sent)

    def is_silent(self, least: int = IN_A_ROW) -> bool:
        """Nothing gets through: nearly all that left between the first and the last of them has failed."""
        last = max(self._numbers, default=0)
        return self._is_row(least, _NEARLY_ALL, last) or self._is_row(_MANY_FAILED, _WITH_MANY, last)

    def _is_row(self, least: int, share: float, until: int) -> bool:
        numbers = self._numbers
        return len(numbers) >= least and len(numbers) >= share * (until - min(numbers) + 1)

"""Whether to try again: whose fault a failure is, and how long a sample waits.

How fast requests leave, first attempts and retries alike, is `pace.py`'s to say. An overload or an outage is waited out
until the deadline, and no attempt is counted; only what is a sample's own fault is final after a few.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC

from ..failures import BrokenReply, Failure, Overloaded, RateLimited, WorkerDied

BASE_DELAY = 0.2
MAX_DELAY = 0.5
#: How often a sample is tried again after failures that are its own.
MAX_RETRIES = 5
#: A sample that two worker processes died on is taken for the cause.
MAX_WORKER_DEATHS = 2


def backoff(failures: int, uniform: Callable[[], float] = random.random) -> float:
    """Full jitter: anything from 0 to a ceiling that doubles with each failure."""
    ceiling = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(failures - 1, 32))
    return uniform() * ceiling


def parse_retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """`retry-after-ms`, or `Retry-After` in seconds or as a date; nonsense is as good as absent."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None and (seconds := _seconds(milliseconds)) is not None:
        return seconds / 1000.0
    value = headers.get("retry-after")
    if value is None:
        return None
    if (seconds := _seconds(value)) is not None:
        return seconds
    from email.utils import parsedate_to_datetime  # slow to import, and dates are rare

    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    if date.tzinfo is None:  # the old asctime form names no zone: it is GMT by definition
        date = date.replace(tzinfo=UTC)
    return max(0.0, date.timestamp() - now())


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0.0 else None


class Blame:
    """Whose fault a failure is: the sample's, if others get through that left after it, else the endpoint's.

    An overload is the sample's only if nobody else was refused either. Once a failure was a sample's own, the next ones
    are too while only such samples fail: the last ones of a batch have nobody left beside them.
    """

    def __init__(self, max_retries: int = MAX_RETRIES) -> None:
        self._max_retries = max_retries
        self._others_fail = False
        self._latest: tuple[object, int] = (None, 0)
        self._before = 0  # the departure of the latest that failed and was another's

    def answered(self) -> None:
        self._others_fail = False

    def falls_on(
        self, who: object, number: int, failure: Failure, since: int, others_got_through: bool, is_known: bool
    ) -> bool:
        """`number` is its departure, `since` the one that failed before; `is_known` for faults of its own."""
        others_failed = self._before if self._latest[0] is who else self._latest[1]
        self._latest, self._before = (who, number), others_failed
        if isinstance(failure, (BrokenReply, WorkerDied)):
            return True
        is_own = others_got_through and (others_failed < since or not isinstance(failure, Overloaded))
        is_own = (is_own or (is_known and not self._others_fail)) and not isinstance(failure, RateLimited)
        self._others_fail = self._others_fail or not is_own
        return is_own

    def of_stall(self, others_got_through: bool, is_known: bool) -> bool:
        """Whether a stall is the sample's own. Nobody got through in its time: then it is an outage, and waited out."""
        is_own = others_got_through or (is_known and not self._others_fail)
        self._others_fail = self._others_fail or not is_own
        return is_own

    def is_final(self, faults: Sequence[Failure]) -> bool:
        deaths = sum(isinstance(fault, WorkerDied) for fault in faults)
        return deaths >= MAX_WORKER_DEATHS or len(faults) > self._max_retries

"""When to try again: the whole retry policy, as arithmetic without a clock or a socket.

Three parts: how long to wait (full jitter, or what the endpoint asks for), a budget that keeps retries at a tenth of
the traffic while a storm lasts, and a breaker for failures that no other sample can escape. The total deadline rules
all three: a wait that does not fit is not begun.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC

from ..failures import Failure, RateLimited, WorkerDied

BASE_DELAY = 0.5
MAX_DELAY = 8.0
#: Attempts at one sample. Rate limits do not count: there the deadline decides, since waiting does help.
MAX_ATTEMPTS = 6
#: A sample that two worker processes died on is taken for the cause.
MAX_WORKER_DEATHS = 2


def backoff(failures: int, uniform: Callable[[], float] = random.random) -> float:
    """Full jitter: anything from 0 to a ceiling that doubles with each failure."""
    ceiling = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(failures - 1, 32))
    return uniform() * ceiling


def may_retry(failures: Sequence[Failure]) -> bool:
    """Whether another attempt may follow the last of one sample's failures."""
    last = failures[-1]
    if isinstance(last, WorkerDied):
        return sum(isinstance(failure, WorkerDied) for failure in failures) < MAX_WORKER_DEATHS
    if isinstance(last, RateLimited):
        return True
    return last.retryable and sum(not isinstance(failure, RateLimited) for failure in failures) < MAX_ATTEMPTS


def retry_delay(failure: Failure, failures: int, uniform: Callable[[], float] = random.random) -> float:
    """Seconds to wait; never sooner than the endpoint asked, and jittered so that not all come back at once."""
    delay = backoff(failures, uniform)
    return delay if failure.retry_after is None else failure.retry_after + 0.1 * delay


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


class RetryBudget:
    """Retries are free while nearly all requests succeed; in a storm each one needs a token.

    A token is earned by every ten first attempts, and one by every `1 / trickle` seconds, so that a judge whose samples
    have all failed once still notices the recovery. A few successes in a row end the storm.
    """

    RATIO = 0.1
    BURST = 10.0
    HEALTHY = 0.9
    _MEMORY = 1.0 / 8.0

    def __init__(self, trickle: float = 1.0) -> None:
        self._trickle = trickle
        self._tokens = self.BURST
        self._health = 1.0
        self._refilled_at: float | None = None

    def sent(self) -> None:
        """A first attempt goes out."""
        if self._tokens < self.BURST:
            self._tokens = min(self.BURST, self._tokens + self.RATIO)

    def outcome(self, good: bool) -> None:
        self._health += self._MEMORY * ((1.0 if good else 0.0) - self._health)

    def wait(self, now: float) -> float:
        """Seconds until a retry may go out; 0.0 if it may now."""
        if self._refilled_at is not None:
            earned = (now - self._refilled_at) * self._trickle
            self._tokens = min(self.BURST, self._tokens + max(0.0, earned))
        self._refilled_at = now
        missing = 1.0 - self._tokens
        if self._health >= self.HEALTHY or missing < 1e-6:
            return 0.0
        return missing / self._trickle

    def spend(self) -> None:
        if self._health < self.HEALTHY:
            self._tokens = max(0.0, self._tokens - 1.0)


class Breaker:
    """Opened by a failure that every further request would share; closed again for the next run."""

    def __init__(self) -> None:
        self.failure: Failure | None = None

    def open(self, failure: Failure) -> bool:
        """True for the first one, which is the one to tell about."""
        first = self.failure is None
        if first:
            self.failure = failure
        return first

    def close(self) -> None:
        self.failure = None

"""A hard cap on what reaches an endpoint, and an end to waiting for one that is gone: a transport around a transport.

Every attempt of every mode takes a permit before its bytes leave, whoever asks and for whatever reason: no retry can
slip past the cap. A judge waits out an outage until its deadline, which a trainer wants and a benchmark does not:
when no reply has come for a while, the rest of the run is not asked.
"""

from __future__ import annotations

import threading
import time

from rewardcore.failures import Failure
from rewardcore.http.transports import Transport
from rewardcore.reply import Answer, Reply


class CapReached(Failure):
    opens_breaker = True


class NoReply(Failure):
    opens_breaker = True


class Meter:
    """Shared by all judges of one endpoint; `sent` is what has left, and `stopped` says why nothing more may."""

    def __init__(self, cap: int, most_silence: float) -> None:
        self.cap = cap
        self.sent = 0
        self.stopped: str | None = None
        self._most_silence = most_silence
        self._heard_at: float | None = None  # None before anybody has asked
        self._has_failed = False
        self._lock = threading.Lock()

    def spend(self, requests: int = 1) -> None:
        """Raises where that many may not leave any more; then none of them has."""
        with self._lock:
            now = time.monotonic()
            if self._heard_at is None:
                self._heard_at = now
            if self._has_failed and now - self._heard_at > self._most_silence:
                self.stopped = f"no reply came for {self._most_silence:g} s"
                raise NoReply(self.stopped)
            if self.sent + requests > self.cap:
                self.stopped = f"--max-requests {self.cap} was reached"
                raise CapReached(self.stopped)
            self.sent += requests

    def heard(self) -> None:
        self._heard_at, self._has_failed = time.monotonic(), False

    def failed(self) -> None:
        self._has_failed = True

    def wrap(self, transport: Transport) -> MeteredTransport:
        """For `open_judge(…, wrap_transport=…)`: whatever the judge sends is metered from its first request on."""
        return MeteredTransport(transport, self)

    def begin(self) -> None:
        """Another run begins: what was not heard between two of them is no silence."""
        if not self._has_failed:
            self._heard_at = None


class MeteredTransport:
    def __init__(self, inner: Transport, meter: Meter) -> None:
        self._inner, self._meter = inner, meter

    async def send(self, body: bytes) -> Reply | Answer:
        self._meter.spend()
        try:
            reply = await self._inner.send(body)
        except Failure as failure:
            self._note(failure)
            raise
        except BaseException:  # given up, after it had stalled
            self._meter.failed()
            raise
        self._note(reply.failure if isinstance(reply, Answer) else None)
        return reply

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, failure: Failure | None) -> None:
        self._meter.failed() if failure is not None and failure.retryable else self._meter.heard()

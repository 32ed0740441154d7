"""Transports: how a request's bytes reach the endpoint. The one seam that a test or a benchmark replaces.

`Transport` is what the driver sends with: aiohttp_client.py (production), httpx_client.py (what respx mocks) and
worker_pool.py (processes that fetch and parse). They know nothing of calls, retries or limits.
"""

from __future__ import annotations

import socket
from typing import Protocol, TypeVar

from ...reply import Answer, Reply

#: How long a connection may take to come up, whatever the client; the engine's deadlines bound everything after it.
CONNECT_SECONDS = 10.0


class Transport(Protocol):
    """Where a request cannot always leave at once, `starting()` is what to wait for first; None if it can."""

    async def send(self, body: bytes) -> Reply | Answer:
        """The reply, or the whole answer where it is parsed on the way; else a Failure raised. Cancelled, it ends."""

    async def close(self) -> None: ...


E = TypeVar("E", bound=BaseException)


def cause_of(error: BaseException, kind: type[E]) -> E | None:
    """The first of that kind among an error and what led to it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause


def no_such_host(error: BaseException) -> bool:
    """Whether the name does not exist, other than that nobody could say so far."""
    found = cause_of(error, socket.gaierror)
    return found is not None and found.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None))

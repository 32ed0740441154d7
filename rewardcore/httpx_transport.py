"""Requests over httpx: for the sync and process modes, and for asyncio where respx mocks the endpoint.

The sync client is bounded by a total deadline, not only by a time-out per read: its network backend gives every
read and write just the time that is left, so an endpoint that trickles headers for ever ends with the deadline too.
"""

from __future__ import annotations

import ssl
from typing import Any

import httpcore
import httpx

from .clock import Clock
from .endpoint import CONNECT_SECONDS, Endpoint
from .failures import BrokenReply, ConnectionFailed, DeadlinePassed, Disconnected, Failure, TlsFailed
from .reply import Body, Reply, ReplyReader


class HttpxTransport:
    """One keep-alive connection, one request at a time."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._reader = ReplyReader(endpoint)
        self._backend = _DeadlineBackend(clock)
        self._client = httpx.Client(
            headers=endpoint.request_headers(),
            transport=_DeadlineTransport(self._backend),
            timeout=None,
            follow_redirects=False,
            trust_env=False,
        )

    def send(self, body: bytes, deadline: float) -> Reply:
        """The reply, or a Failure raised; past `deadline` (on the clock) it is DeadlinePassed."""
        self._backend.deadline = deadline
        try:
            with self._client.stream("POST", self._endpoint.url, content=body) as response:
                gathered = _gatherer(response)
                if not response.is_stream_consumed:
                    for chunk in response.iter_raw():
                        gathered.feed(chunk)
                return self._reader.read(response.status_code, response.headers, gathered.finish())
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise failure_from(error, self._endpoint) from None
        except (KeyboardInterrupt, SystemExit) as error:  # without the client's frames: their locals hold the key
            raise error.with_traceback(None) from None

    def close(self) -> None:
        self._client.close()


class AsyncHttpxTransport:
    """As many connections as there are requests in flight. Its caller sets the time limit, by cancelling."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader = ReplyReader(endpoint)
        self._client = httpx.AsyncClient(
            headers=endpoint.request_headers(),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
        )

    async def send(self, body: bytes) -> Reply:
        try:
            async with self._client.stream("POST", self._endpoint.url, content=body) as response:
                gathered = _gatherer(response)
                if not response.is_stream_consumed:
                    async for chunk in response.aiter_raw():
                        gathered.feed(chunk)
                return self._reader.read(response.status_code, response.headers, gathered.finish())
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise failure_from(error, self._endpoint) from None

    async def close(self) -> None:
        await self._client.aclose()


def _gatherer(response: httpx.Response) -> Body:
    """A body to fill from the raw stream; a mocked response comes read and decoded."""
    if not response.is_stream_consumed:
        return Body(response.headers.get("content-encoding", ""))
    body = Body()
    body.feed(response.content)
    return body


def failure_from(error: Exception, endpoint: Endpoint) -> Failure:
    where, what = endpoint.host, f"{type(error).__name__}: {error}"
    if isinstance(error, (httpx.ConnectTimeout, httpx.ConnectError)):
        cause = error.__cause__  # httpcore's, raised again "from None": what it stands for is its context
        if cause is not None and isinstance(cause.__context__, ssl.SSLError):
            return TlsFailed(f"no TLS connection to {where}: {error}")
        return ConnectionFailed(f"no connection to {where}: {what}")
    if isinstance(error, (httpx.InvalidURL, UnicodeError)):
        return Failure(f"no connection to {where}, which is no host name: {what}")
    if isinstance(error, httpx.TimeoutException):
        return DeadlinePassed(f"{where} did not answer in the time that was left")
    if isinstance(error, httpx.RemoteProtocolError) and "without sending a response" in str(error):
        return Disconnected(f"{where} closed the connection without an answer")
    if isinstance(error, httpx.RemoteProtocolError):
        return BrokenReply(f"{where} broke the protocol: {error}")
    return ConnectionFailed(f"the connection to {where} broke: {what}")


class _DeadlineTransport(httpx.HTTPTransport):
    def __init__(self, backend: _DeadlineBackend) -> None:
        context = httpx.create_ssl_context(trust_env=False)
        super().__init__(verify=context, trust_env=False)
        # httpx has no argument for a network backend; the pool is its one seam, unchanged since httpx 0.13.
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=1,
            max_keepalive_connections=1,
            network_backend=backend,
        )


class _DeadlineBackend(httpcore.NetworkBackend):
    """Gives each socket operation the time that is left until `deadline`."""

    def __init__(self, clock: Clock) -> None:
        self.deadline = float("inf")
        self._clock = clock
        self._sockets = httpcore.SyncBackend()

    def left(self, error: type[Exception]) -> float | None:
        seconds = self.deadline - self._clock.now()
        if seconds <= 0.0:
            raise error("the deadline has passed")
        return None if seconds == float("inf") else seconds

    def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        left = self.left(httpcore.ReadTimeout)
        options["timeout"] = CONNECT_SECONDS if left is None else min(left, CONNECT_SECONDS)
        return _DeadlineStream(self._sockets.connect_tcp(host, port, **options), self)

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, backend: _DeadlineBackend) -> None:
        self._stream = stream
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._backend.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._backend.left(httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._backend.left(httpcore.ReadTimeout)
        return _DeadlineStream(self._stream.start_tls(ssl_context, server_hostname, left), self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        self._stream.close()

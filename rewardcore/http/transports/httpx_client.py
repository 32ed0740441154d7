"""Requests over httpx: on a loop for the sync mode and where respx mocks the endpoint, blocking in a worker process.

A request is made whole here: its client would take a quarter of the time to merge what it was told once. Nothing here
sets a time limit: the driver cancels what is overdue, and a worker process is interrupted.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # these three would come with the first request, when a fork may come in between
import ssl
from collections.abc import Mapping

import anyio._backends._asyncio  # noqa: F401
import httpcore  # noqa: F401
import httpx

from ...failures import BrokenReply, ConnectionFailed, Disconnected, Failure, TlsFailed, UnknownHost
from ...reply import Reply
from ..endpoint import Endpoint
from ..reading import Body, ReplyReader
from . import CONNECT_SECONDS, cause_of, no_such_host

#: Who logs what an endpoint sent.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11")
_ERRORS = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)


#: A status, headers and a whole body.
Response = tuple[int, Mapping[str, str], bytes]


class _Exchange:
    """What the two clients share: the request, and how its response is read."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader = ReplyReader(endpoint)
        self._url = httpx.URL(endpoint.url)
        self._headers = httpx.Headers({"Host": self._url.netloc.decode("ascii"), "User-Agent": "rewardcore"})
        self._headers.update(endpoint.request_headers())
        self._mask = endpoint.mask()
        self._mask.watch_logs(*_LOGGERS)

    def request(self, body: bytes | None, path: str = "") -> httpx.Request:
        time = {"connect": CONNECT_SECONDS}
        method, url = ("POST", self._url) if body is not None else ("GET", httpx.URL(self._endpoint.base_url + path))
        return httpx.Request(method, url, headers=self._headers, content=body, extensions={"timeout": time})

    def gatherer(self, response: httpx.Response) -> Body:
        return Body(response.headers.get("content-encoding", ""))

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        return self._reader.read(status, headers, body)

    def failure(self, error: Exception) -> Failure:
        where, what = self._endpoint.host, f"{type(error).__name__}: {error}"
        if isinstance(error, (httpx.ConnectTimeout, httpx.ConnectError)):
            if cause_of(error, ssl.SSLError) is not None:
                return TlsFailed(f"no TLS connection to {where}: {error}")
            if no_such_host(error):
                return UnknownHost(f"no connection to {where}, whose name does not exist: {what}; correct base_url")
            return ConnectionFailed(f"no connection to {where}: {what}")
        if isinstance(error, (httpx.InvalidURL, UnicodeError)):
            return Failure(f"no connection to {where}, which is no host name: {what}")
        if isinstance(error, httpx.RemoteProtocolError) and "without sending a response" in str(error):
            return Disconnected(f"{where} closed the connection without an answer")
        if isinstance(error, httpx.RemoteProtocolError):
            return BrokenReply(f"{where} broke the protocol: {error}")
        return ConnectionFailed(f"the connection to {where} broke: {what}")

    def forget(self) -> None:
        self._mask.forget_logs(*_LOGGERS)


class AsyncHttpx:
    """As many connections as there are requests in flight."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._exchange = _Exchange(endpoint)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(verify=endpoint.ssl_context(), trust_env=False, limits=limits)

    async def send(self, body: bytes) -> Reply:
        return self._exchange.read(*await self.fetch(body))

    async def fetch(self, body: bytes | None, path: str = "") -> Response:
        """What came, unread: of a completion, or without a body of whatever is at that path."""
        try:
            response = await self._client.send(self._exchange.request(body, path), stream=True)
            try:
                gathered = self._exchange.gatherer(response)
                async for chunk in response.stream:  # type: ignore[union-attr]
                    gathered.feed(chunk)
                return response.status_code, response.headers, gathered.finish()
            finally:
                await response.aclose()
        except _ERRORS as error:
            raise self._exchange.failure(error) from None

    async def close(self) -> None:
        await self._client.aclose()
        self._exchange.forget()


class BlockingHttpx:
    """One connection, for one request at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._exchange = _Exchange(endpoint)
        self._tls = endpoint.ssl_context()
        self.renew()

    def renew(self) -> None:
        """After an interrupt, which may leave a client in any state: one of its locks held, a socket half opened."""
        self._client = httpx.Client(verify=self._tls, trust_env=False)

    def send(self, body: bytes) -> Reply:
        try:
            response = self._client.send(self._exchange.request(body), stream=True)
            try:
                gathered = self._exchange.gatherer(response)
                for chunk in response.stream:  # type: ignore[union-attr]
                    gathered.feed(chunk)
                return self._exchange.read(response.status_code, response.headers, gathered.finish())
            finally:
                response.close()
        except _ERRORS as error:
            raise self._exchange.failure(error) from None

"""Requests over aiohttp: what the asyncio mode sends with in production.

The session is tuned for one kind of request: no connection cap of its own (the engine's limit is the only one), no
cookies, no redirects, no decompression (the reply reader caps that), and no time-out per request: the judge
cancels what is overdue.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # it would come with the first request, when a fork may come in between
import io
import socket
import ssl
import weakref
from typing import Any

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict
from yarl import URL

from ...failures import BrokenReply, ConnectionFailed, Disconnected, Failure, TlsFailed, UnknownHost
from ...reply import Reply
from ..endpoint import Endpoint
from ..reading import Body, ReplyReader
from . import CONNECT_SECONDS, no_such_host

#: From here on aiohttp wants to send a body piece by piece.
_LARGE = 2**20


class _Request(aiohttp.ClientRequest):
    """All requests have the same headers, and the session has just copied them: they are taken as they are.

    It saves a tenth of the CPU a request costs. An aiohttp that no longer calls these methods is only slower.
    """

    def update_headers(self, headers: Any) -> None:
        self.headers = headers

    def update_auto_headers(self, skip_auto_headers: Any) -> None:
        pass


class AiohttpTransport:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._url = URL(endpoint.url)
        self._reader = ReplyReader(endpoint)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        host = self._url.host_port_subcomponent or ""  # as it goes over the wire: [::1]:8000, xn--mnchen-3ya.example
        headers = CIMultiDict({hdrs.HOST: host, hdrs.USER_AGENT: "rewardcore"})
        headers.update(endpoint.request_headers())
        self._session = aiohttp.ClientSession(
            headers=headers,
            request_class=_Request,
            connector=aiohttp.TCPConnector(
                limit=0, ttl_dns_cache=300, ssl=endpoint.ssl_context(), socket_factory=self._new_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            auto_decompress=False,
            trust_env=False,
        )

    async def send(self, body: bytes) -> Reply:
        try:
            data = aiohttp.BytesPayload(body) if len(body) < _LARGE else io.BytesIO(body)  # the first needs no search
            response = await self._session.post(self._url, data=data, allow_redirects=False)
            headers, stream = response.headers, response.content
            try:
                if stream.is_eof() and hdrs.CONTENT_ENCODING not in headers:
                    content = stream.read_nowait()  # it came with its headers, so it is far smaller than the cap
                else:
                    gathered = Body(headers.get(hdrs.CONTENT_ENCODING, ""))
                    async for chunk in stream.iter_any():
                        gathered.feed(chunk)
                    content = gathered.finish()
            except BaseException:
                response.close()  # a whole body gives its connection back by itself; any other must not be used again
                raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._failure(error) from None
        return self._reader.read(response.status, headers, content)

    async def close(self) -> None:
        for connection in self._sockets:  # one whose server does not read would be waited for until it does
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        await self._session.close()

    def _new_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        connection = socket.socket(family, kind, protocol)
        self._sockets.add(connection)
        return connection

    def _failure(self, error: Exception) -> Failure:
        where, what = self._endpoint.host, f"{type(error).__name__}: {error}"
        if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
            return TlsFailed(f"no TLS connection to {where}: {error}")
        if no_such_host(error):
            return UnknownHost(f"no connection to {where}, whose name does not exist: {what}; correct base_url")
        if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
            return ConnectionFailed(f"no connection to {where}: {what}")
        if isinstance(error, (aiohttp.InvalidURL, UnicodeError)):
            return Failure(f"no connection to {where}, which is no host name: {what}")
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return Disconnected(f"{where} closed the connection without an answer")
        if isinstance(error, (aiohttp.ClientPayloadError, aiohttp.ClientResponseError, ValueError)):
            return BrokenReply(f"{where} broke the protocol: {what}")
        return ConnectionFailed(f"the connection to {where} broke: {what}")

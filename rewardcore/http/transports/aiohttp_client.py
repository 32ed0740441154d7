"""Requests over aiohttp: what the asyncio mode sends with in production.

aiohttp's connector, which resolves, connects and keeps connections alive, and its parser; not its session. All requests
have one URL and one set of headers: their head is written once, and what a session would decide anew for each of them
(redirects, cookies, proxies, time-outs, encodings) is decided by leaving it out, with half of what a request costs.
There is no cap on connections (the engine's limit is the only one), and no time-out but for connecting: the judge
cancels what is overdue.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401  # it would come with the first request, when a fork may come in between
import socket
import ssl
import weakref
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from ...failures import BrokenReply, ConnectionFailed, Disconnected, Failure, TlsFailed, UnknownHost
from ...reply import Reply
from ..endpoint import Endpoint
from ..reading import Body, ReplyReader
from . import CONNECT_SECONDS, no_such_host

_TIME = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)


class AiohttpTransport:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader = ReplyReader(endpoint)
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        url = URL(endpoint.url)
        self._head = _head(url, endpoint)
        self._where = aiohttp.ClientRequest(hdrs.METH_POST, url, loop=asyncio.get_running_loop())  # is never sent
        self._connector = aiohttp.TCPConnector(
            limit=0, ttl_dns_cache=300, ssl=endpoint.ssl_context(), socket_factory=self._new_socket
        )

    async def send(self, body: bytes) -> Reply:
        try:
            connection, protocol = await self._connect()
            try:
                transport = protocol.transport
                if transport is None:
                    raise aiohttp.ServerDisconnectedError
                protocol.set_response_params(read_until_eof=True, auto_decompress=False)
                transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
                message, stream = await protocol.read()
                while 100 <= message.code < 200 and not message.upgrade:
                    message, stream = await protocol.read()
                encoding = message.headers.get(hdrs.CONTENT_ENCODING, "")
                if stream.is_eof() and not encoding:
                    content = stream.read_nowait()  # it came with its headers, so it is far smaller than the cap
                else:
                    gathered = Body(encoding)
                    async for chunk in stream.iter_any():
                        gathered.feed(chunk)
                    content = gathered.finish()
                if transport.get_write_buffer_size():
                    transport.abort()  # an answer to half a request: the other half must not precede the next one
                connection.release()
            except BaseException:
                if connection.transport is not None:
                    connection.transport.abort()  # at once, whether or not the server reads what is left
                connection.close()
                raise
        except (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError) as error:
            raise self._failure(error) from None
        return self._reader.read(message.code, message.headers, content)

    async def _connect(self) -> tuple[aiohttp.connector.Connection, ResponseHandler]:
        """A connection on which nothing has come that nobody asked for: it would be taken for the next one's reply."""
        while True:
            connection = await self._connector.connect(self._where, [], _TIME)
            protocol = connection.protocol
            assert protocol is not None
            if not protocol.should_close:
                return connection, protocol
            connection.close()

    async def close(self) -> None:
        for connection in self._sockets:  # one whose server does not read would be waited for until it does
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        await self._connector.close()

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
        if isinstance(error, TimeoutError):  # only a connection's beginning has a time of its own
            return ConnectionFailed(f"no connection to {where} within {CONNECT_SECONDS:g} s")
        if isinstance(error, aiohttp.ClientConnectorError):
            return ConnectionFailed(f"no connection to {where}: {what}")
        if isinstance(error, (aiohttp.InvalidURL, UnicodeError)):
            return Failure(f"no connection to {where}, which is no host name: {what}")
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return Disconnected(f"{where} closed the connection without an answer")
        if isinstance(error, (aiohttp.ClientPayloadError, HttpProcessingError, ValueError)):
            return BrokenReply(f"{where} broke the protocol: {what}")
        return ConnectionFailed(f"the connection to {where} broke: {what}")


def _head(url: URL, endpoint: Endpoint) -> bytes:
    """Everything that stands before a body, but for its length."""
    host = url.host_port_subcomponent or ""  # as it goes over the wire: [::1]:8000, xn--mnchen-3ya.example
    headers = CIMultiDict({hdrs.HOST: host, hdrs.USER_AGENT: "rewardcore"})
    headers.update(endpoint.request_headers())
    lines = [f"POST {url.raw_path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"{hdrs.CONTENT_LENGTH}: "]).encode("ascii")

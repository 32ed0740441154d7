"""Requests over httpx: blocking for the caller's thread and for worker processes, async where respx mocks the endpoint.

The blocking client can be interrupted from another thread at every step, also while a name is looked up or an
address does not answer: so whoever waits for it keeps its own deadline, and need not tell it here.
"""

from __future__ import annotations

import contextlib
import encodings.idna  # noqa: F401  # these two would come with the first request, when a fork may come in between
import ipaddress
import select
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

import anyio._backends._asyncio  # noqa: F401
import httpcore
import httpx

from ...failures import BrokenReply, ConnectionFailed, Disconnected, Failure, TlsFailed
from ...reply import Reply
from ..endpoint import Endpoint
from ..reading import Body, ReplyReader
from . import CONNECT_SECONDS

#: Who logs what an endpoint sent.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11")
_OPTIONS: dict[str, Any] = {"follow_redirects": False, "trust_env": False}


class BlockingHttpx:
    """One keep-alive connection, one request at a time; attempts are numbered upwards, so that one can be aborted."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader = ReplyReader(endpoint)
        self._mask = endpoint.mask()
        self._mask.watch_logs(*_LOGGERS)
        self._backend = _Interruptible()
        context = endpoint.ssl_context()
        transport = httpx.HTTPTransport(verify=context, trust_env=False)
        # httpx has no argument for a network backend; the pool is its one seam, unchanged since httpx 0.13.
        transport._pool = httpcore.ConnectionPool(ssl_context=context, max_connections=1, network_backend=self._backend)
        self._client = httpx.Client(headers=endpoint.request_headers(), transport=transport, timeout=None, **_OPTIONS)

    def send(self, body: bytes, number: int) -> Reply:
        """The reply, or a Failure raised."""
        self._backend.begin(number)
        try:
            with self._client.stream("POST", self._endpoint.url, content=body) as response:
                gathered = _gatherer(response)
                if not response.is_stream_consumed:
                    for chunk in response.iter_raw():
                        gathered.feed(chunk)
                return self._reader.read(response.status_code, response.headers, gathered.finish())
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise _failure(error, self._endpoint) from None
        finally:
            self._backend.begin(0)

    def abort(self, number: int) -> None:
        """From another thread: this attempt, begun or not, ends at once."""
        self._backend.interrupt(number)

    def close(self) -> None:
        self._client.close()
        self._mask.forget_logs(*_LOGGERS)


class AsyncHttpx:
    """As many connections as there are requests in flight. Its caller sets the time limit, by cancelling."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader = ReplyReader(endpoint)
        self._mask = endpoint.mask()
        self._mask.watch_logs(*_LOGGERS)
        self._client = httpx.AsyncClient(
            headers=endpoint.request_headers(),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            verify=endpoint.ssl_context(),
            **_OPTIONS,
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
            raise _failure(error, self._endpoint) from None

    async def close(self) -> None:
        await self._client.aclose()
        self._mask.forget_logs(*_LOGGERS)


def _gatherer(response: httpx.Response) -> Body:
    """A body to fill from the raw stream; a mocked response comes read and decoded."""
    if not response.is_stream_consumed:
        return Body(response.headers.get("content-encoding", ""))
    body = Body()
    body.feed(response.content)
    return body


def _failure(error: Exception, endpoint: Endpoint) -> Failure:
    where, what = endpoint.host, f"{type(error).__name__}: {error}"
    if isinstance(error, (httpx.ConnectTimeout, httpx.ConnectError)):
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            return TlsFailed(f"no TLS connection to {where}: {error}")
        return ConnectionFailed(f"no connection to {where}: {what}")
    if isinstance(error, (httpx.InvalidURL, UnicodeError)):
        return Failure(f"no connection to {where}, which is no host name: {what}")
    if isinstance(error, httpx.RemoteProtocolError) and "without sending a response" in str(error):
        return Disconnected(f"{where} closed the connection without an answer")
    if isinstance(error, httpx.RemoteProtocolError):
        return BrokenReply(f"{where} broke the protocol: {error}")
    return ConnectionFailed(f"the connection to {where} broke: {what}")


class _Interruptible(httpcore.NetworkBackend):
    """Blocking sockets that another thread can end; knows which attempt is under way, and on which socket."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._interrupted = 0
        self._socket: socket.socket | None = None
        self._found = threading.Event()  # the addresses of a name, or the interruption

    def begin(self, number: int) -> None:
        """0 between attempts."""
        with self._lock:
            self._number = number

    def interrupt(self, number: int) -> None:
        with self._lock:
            self._interrupted = max(self._interrupted, number)
            if number == self._number and self._socket is not None:
                with contextlib.suppress(OSError):  # it was never connected, or is closed
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            self._found.set()

    def use(self, connection: socket.socket) -> None:
        with self._lock:
            if self._number and self._number <= self._interrupted:
                connection.close()
                raise httpcore.ConnectError("interrupted")
            self._socket = connection

    def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        error: Exception = OSError("the name has no address")
        for family, kind, protocol, _, address in self._addresses(host, port):
            connection = socket.socket(family, kind, protocol)
            self.use(connection)
            try:
                connection.settimeout(CONNECT_SECONDS)
                connection.connect(address)
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _Stream(connection, self)
            except OSError as failed:
                connection.close()
                error = failed
        raise httpcore.ConnectError(str(error))

    def _addresses(self, host: str, port: int) -> Iterable[Any]:
        """Looked up in a thread of its own, since nothing can interrupt a resolver; that thread ends when it does."""
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)  # which needs no looking up
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found: list[Any] = []
        ended = self._found = threading.Event()

        def look_up() -> None:
            try:
                found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                found.append(error)
            ended.set()

        if self._number > self._interrupted:
            threading.Thread(target=look_up, name="resolver", daemon=True).start()
            ended.wait()
        if not found or isinstance(found[0], Exception):
            raise httpcore.ConnectError(str(found[0]) if found else "interrupted")
        addresses: list[Any] = found[0]
        return addresses

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError("the engine decides when to try again")


class _Stream(httpcore.NetworkStream):
    def __init__(self, connection: socket.socket, backend: _Interruptible) -> None:
        self._socket = connection
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._backend.use(self._socket)
        try:
            return self._socket.recv(max_bytes)
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._backend.use(self._socket)
        try:
            self._socket.sendall(buffer)
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            connection = ssl_context.wrap_socket(
                self._socket, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            self._socket = connection
            self._backend.use(connection)
            connection.do_handshake()
        except OSError as error:  # and with it ssl.SSLError
            self.close()
            raise httpcore.ConnectError(str(error)) from error
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # an idle connection that is, was closed by the server
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        return None

    def close(self) -> None:
        self._socket.close()

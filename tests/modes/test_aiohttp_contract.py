"""What our transport relies on in aiohttp below its session, and what it does itself in the session's place."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler

import rewardcore as rc
from rewardcore.failures import Rejected
from rewardcore.http.transports.aiohttp_client import AiohttpTransport
from tests.modes.hostile_server import HostileServer, Script, completion, http, ok

#: More than any socket takes before its other end reads.
LARGE = 32 * 2**20

Served = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-0123456789")


def seen(script: Script) -> list[list[tuple[str, str]]]:
    """The headers of each request, as they came over the wire."""
    lines = [head.split("\r\n")[1:-2] for head in script.heads]
    return [
        sorted((name, value.strip()) for name, _, value in (line.partition(":") for line in head)) for head in lines
    ]


@contextlib.asynccontextmanager
async def opened(base_url: str, **options: Any) -> AsyncIterator[AiohttpTransport]:
    transport = AiohttpTransport(rc.Endpoint(base_url, "judge", api_key_env="JUDGE_KEY", **options))
    try:
        yield transport
    finally:
        await transport.close()


@contextlib.asynccontextmanager
async def serving(*connections: Served) -> AsyncIterator[str]:
    """A server whose first connection is served by the first of these, the second by the second; its base URL."""
    left, ended = iter(connections), asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await next(left)(reader, writer)
        finally:
            writer.close()
            ended.release()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        for _ in connections:  # whoever asked has hung up by now
            await ended.acquire()


async def read_head(reader: asyncio.StreamReader) -> int:
    """The length that a request says it has."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return int(head.lower().partition("content-length:")[2].split()[0])


async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(await read_head(reader))
    writer.write(http(200, completion("second <score>2</score>")))
    await reader.read()


def expected(server: HostileServer, length: int, **other: str) -> list[tuple[str, str]]:
    headers = {
        "Host": server.authority,
        "User-Agent": "rewardcore",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": "Bearer sk-0123456789",
        "Content-Length": str(length),
    }
    return sorted({**headers, **other}.items())


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (aiohttp.ClientRequest, ["method", "url", "loop"]),
        (aiohttp.TCPConnector.connect, ["req", "traces", "timeout"]),
        (ResponseHandler.set_response_params, ["read_until_eof", "auto_decompress"]),
        (ResponseHandler.read, []),
    ],
)
def test_what_we_call_below_the_session_is_there(function: Callable[..., Any], arguments: list[str]) -> None:
    assert set(arguments) <= set(inspect.signature(function).parameters)


def test_a_connection_tells_whether_it_may_be_used_again() -> None:
    assert isinstance(inspect.getattr_static(ResponseHandler, "should_close"), property)


async def test_every_request_has_the_same_headers_and_its_own_length(server: HostileServer) -> None:
    script = server.script(ok)
    sizes = (100, 2**21, 200)
    async with opened(server.base_url) as transport:
        for size in sizes:
            reply = await transport.send(f"[[{script.marker}]]".ljust(size).encode())
            assert reply.text == "Fine. <score>7</score>"
    assert seen(script) == [expected(server, size) for size in sizes]


async def test_a_header_of_the_callers_own_stands_in_place_of_ours(server: HostileServer) -> None:
    script = server.script(ok)
    async with opened(server.base_url, headers={"user-agent": "mine", "X-Team": "red"}) as transport:
        await transport.send(f"[[{script.marker}]]".ljust(100).encode())
    (headers,) = seen(script)
    names = {name.lower(): value for name, value in headers}
    assert (names["user-agent"], names["x-team"]) == ("mine", "red")
    assert len(names) == len(headers)


async def test_a_reply_that_nobody_asked_for_is_not_the_next_requests(server: HostileServer) -> None:
    """A gateway that answers twice would else shift every verdict of a connection by one sample."""
    is_said = asyncio.Event()

    async def say_it_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(await read_head(reader))
        writer.write(http(200, completion("first <score>1</score>")))
        await go_on.wait()
        writer.write(http(200, completion("first <score>1</score>")))
        is_said.set()
        await reader.read()

    go_on = asyncio.Event()
    async with serving(say_it_twice, answer_one) as base_url, opened(base_url) as transport:
        assert (await transport.send(b"one")).text == "first <score>1</score>"
        go_on.set()
        await is_said.wait()
        for _ in range(3):  # it lies in the socket; these turns of the loop read it
            await asyncio.sleep(0)
        assert (await transport.send(b"two")).text == "second <score>2</score>"


async def test_an_answer_to_half_a_request_ends_its_connection(server: HostileServer) -> None:
    """The other half would stand before the next request."""

    async def refuse_unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(http(413, "{}"))
        with contextlib.suppress(ConnectionError):
            while await reader.read(2**16):
                pass

    async with serving(refuse_unread, answer_one) as base_url, opened(base_url) as transport:
        with pytest.raises(Rejected, match="413"):
            await transport.send(b"." * LARGE)
        assert (await transport.send(b"two")).text == "second <score>2</score>"


async def test_what_is_cancelled_is_not_sent_to_its_end(server: HostileServer) -> None:
    has_come, is_over = asyncio.Event(), asyncio.Event()
    read = 0

    async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal read
        await read_head(reader)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        has_come.set()
        await is_over.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(2**16):
                read += len(chunk)
        is_read.set()

    is_read = asyncio.Event()
    async with serving(read_late) as base_url, opened(base_url) as transport:
        sending = asyncio.ensure_future(transport.send(b"." * LARGE))
        await has_come.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        is_over.set()
        await is_read.wait()
    assert read < LARGE

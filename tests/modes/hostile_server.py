"""A raw HTTP server on 127.0.0.1 that misbehaves on demand and counts what reaches it: no test trusts the client.

One base URL serves every test: a script is a marker that a sample carries in its prompt, with a behaviour for each of
its requests in turn (the last one stays). A behaviour is a coroutine function of one exchange and writes raw bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import itertools
import json
import math
import re
import socket
import ssl
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import rewardcore as rc

Behaviour = Callable[["Exchange"], Awaitable[None]]

_MARKER = re.compile(rb"\[\[([a-z0-9-]+)\]\]")


def eventually(condition: Callable[[], object], what: str, seconds: float = 90.0) -> None:
    """Wait for something that another thread or process brings about; never for time to pass."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"not within {seconds:g} s: {what}"
        time.sleep(0.005)


class Script:
    """A marker and what its requests met."""

    def __init__(self, server: HostileServer, marker: str, steps: tuple[Behaviour, ...]) -> None:
        self.marker = marker
        self.steps = steps
        self.requests = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.heads: list[str] = []
        self._server = server
        self._released = asyncio.Event()

    def sample(self, response: str = "a", **fields: Any) -> rc.Sample:
        return rc.Sample(f"[[{self.marker}]]", response, **fields)

    def samples(self, count: int) -> list[rc.Sample]:
        return [self.sample(str(number)) for number in range(count)]

    def release(self) -> None:
        """Let every held exchange go on, now and later."""
        self._server.loop.call_soon_threadsafe(self._released.set)

    def saw(self, requests: int) -> None:
        eventually(lambda: self.requests >= requests, f"{requests} requests of {self.marker}, not {self.requests}")


class Exchange:
    """One request that has come in whole, and the connection to answer it on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script: Script) -> None:
        self._reader = reader
        self._writer = writer
        self.script = script
        self.headers = script.headers[-1]
        self.body = script.bodies[-1]
        self.ends_connection = False

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status: int, body: bytes | str, **headers: str) -> None:
        await self.send(http(status, body, **headers))

    def close(self) -> None:
        self.ends_connection = True

    def reset(self) -> None:
        self.ends_connection = True
        reset(self._writer)

    async def gone(self) -> None:
        """The client has hung up."""
        self.ends_connection = True
        await self._reader.read()

    async def released(self) -> bool:
        """False when the client hung up first."""
        waiting = [asyncio.ensure_future(self.script._released.wait()), asyncio.ensure_future(self._reader.read())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return waiting[0].done()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def http(status: int, body: bytes | str, **headers: str) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + body


def completion(content: object = "Fine. <score>7</score>", finish: str = "stop", **message: object) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()


class HostileServer:
    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = 0
        self.tls = tls
        self.is_away = False
        self.loop = asyncio.new_event_loop()
        self.connections = 0
        self.unknown = 0
        self._scripts: dict[str, Script] = {}
        self._numbers = itertools.count()
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._thread = threading.Thread(target=self._run, name="hostile-server", daemon=True)
        self._ready = threading.Event()

    def __enter__(self) -> HostileServer:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exception: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def script(self, *steps: Behaviour) -> Script:
        marker = f"script-{next(self._numbers)}"
        script = self._scripts[marker] = Script(self, marker, steps or (ok,))
        return script

    def leave(self, seconds: float) -> None:
        """Every connection is reset and the port is closed, for so long."""
        asyncio.run_coroutine_threadsafe(self._leave(seconds), self.loop).result()

    async def _leave(self, seconds: float) -> None:
        self.is_away = True
        self._listener.close()
        for writer in list(self._tasks.values()):
            reset(writer)
        self._return = asyncio.ensure_future(self._come_back(seconds))

    async def _come_back(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.is_away = False  # before anybody can find out
        await self._listen()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.tls)
        self.port = self._listener.sockets[0].getsockname()[1]

    def _run(self) -> None:
        self.loop.run_until_complete(self._listen())
        self.authority = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        self.base_url = f"{'https' if self.tls else 'http'}://{self.authority}/v1"
        self._ready.set()
        try:
            self.loop.run_forever()
            self._listener.close()
            self.loop.run_until_complete(self._stop())
        finally:
            self.loop.close()

    async def _stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = writer
        self.connections += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # the server stops
        finally:
            del self._tasks[task]
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False when the connection is over."""
        head = await reader.readexactly(1)
        if head == b"\x16":  # a TLS client says hello; it is answered in plain text
            writer.write(http(400, "", Connection="close"))
            return False
        head += await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")[1:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        found = _MARKER.search(body)
        script = self._scripts.get(found[1].decode()) if found else None
        if script is None:
            self.unknown += 1
            writer.write(http(418, "no such script", Connection="close"))
            return False
        script.bodies.append(body)
        script.headers.append(headers)
        script.heads.append(head.decode("latin-1"))
        script.requests += 1
        script.in_flight += 1
        script.peak_in_flight = max(script.peak_in_flight, script.in_flight)
        exchange = Exchange(reader, writer, script)
        try:
            await script.steps[min(script.requests, len(script.steps)) - 1](exchange)
        finally:
            script.in_flight -= 1
        return not exchange.ends_connection


# Behaviours.


async def ok(exchange: Exchange) -> None:
    await exchange.answer(200, completion())


async def breathing(exchange: Exchange) -> None:
    """Fine, after a moment in which other requests may come in."""
    await asyncio.sleep(0.02)
    await ok(exchange)


async def held(exchange: Exchange) -> None:
    """Fine, once the test releases it."""
    if await exchange.released():
        await ok(exchange)
    else:
        exchange.close()


def together(count: int) -> Behaviour:
    """Fine, once this many are in flight at the same time."""
    arrived = asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        if exchange.script.in_flight >= count:
            arrived.set()
        await arrived.wait()
        await ok(exchange)

    return behave


class Limited:
    """Fine after a while for so many at once, and for so many in any second; whoever is too many is refused at once."""

    def __init__(self, seconds: float, status: int, *, at_once: float = math.inf, a_second: float = math.inf) -> None:
        self.seconds = seconds
        self.at_once, self.a_second = at_once, a_second
        self.refused = 0
        self._serving = 0
        self._accepted: deque[float] = deque()
        self._refusal = answers(status)

    async def __call__(self, exchange: Exchange) -> None:
        now, accepted = time.monotonic(), self._accepted
        while accepted and accepted[0] <= now - 1.0:
            accepted.popleft()
        if self._serving >= self.at_once or len(accepted) >= self.a_second:
            self.refused += 1
            await self._refusal(exchange)
            return
        accepted.append(now)
        self._serving += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._serving -= 1
        await ok(exchange)


class Storm:
    """Fine, but for some seconds from its `first` request on, which all fail after `slow` seconds: as many as `met` it,
    among them so many `again` whose body had come before."""

    def __init__(self, first: int, seconds: float, status: int, slow: float) -> None:
        self.first, self.seconds, self.slow = first, seconds, slow
        self.met = self.again = 0
        self._seen: set[bytes] = set()
        self._ends = math.inf
        self._failure = answers(status)

    async def __call__(self, exchange: Exchange) -> None:
        now, is_known = time.monotonic(), exchange.body in self._seen
        self._seen.add(exchange.body)
        if exchange.script.requests == self.first:
            self._ends = now + self.seconds
        if exchange.script.requests < self.first or now >= self._ends:
            await asyncio.sleep(0.01)
            await ok(exchange)
            return
        self.met += 1
        self.again += is_known
        await asyncio.sleep(self.slow)
        await self._failure(exchange)


def after_others(behaviour: Behaviour, others: Script, count: int) -> Behaviour:
    """As `behaviour`, but each time only after three more of so many `others` have been answered.

    Not for ever: a client that asks one at a time sends none of them meanwhile.
    """

    async def behave(exchange: Exchange) -> None:
        due = min(count, 3 * exchange.script.requests)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while others.requests - others.in_flight < due:
                    await asyncio.sleep(0.002)
        await behaviour(exchange)

    return behave


def says(content: object = None, finish: str = "stop", **message: object) -> Behaviour:
    return answers(200, completion(content, finish, **message))


def answers(status: int, body: bytes | str = "{}", **headers: str) -> Behaviour:
    async def behave(exchange: Exchange) -> None:
        await exchange.answer(status, body, **headers)

    return behave


def raw(data: bytes, *, close: bool = False, reset: bool = False) -> Behaviour:
    async def behave(exchange: Exchange) -> None:
        await exchange.send(data)
        if reset:
            exchange.reset()
        elif close:
            exchange.close()

    return behave


def echoes(status: int, before: str = "", after: str = "", **headers: str) -> Behaviour:
    """Tells whoever listens which key it was shown."""

    async def behave(exchange: Exchange) -> None:
        key = exchange.headers.get("authorization", "") + exchange.headers.get("x-team", "")
        await exchange.answer(status, f"{before}{key}{after}", **headers)

    return behave


def parrots(answer: bytes, *, in_two: bool = False, ends_early: bool = False) -> Behaviour:
    """Tells the key where `{key}` stands in a raw answer; in two segments or ending early, it is cut in mid-key."""

    async def behave(exchange: Exchange) -> None:
        key = exchange.headers["authorization"].split()[-1].encode()
        before, _, after = answer.partition(b"{key}")
        data, cut = before + key + exchange.headers["x-team"].encode() + after, len(before) + len(key) // 2
        await exchange.send(data[:cut] if in_two or ends_early else data)
        if in_two:
            await asyncio.sleep(0.02)  # so that the rest has a segment of its own
            await exchange.send(data[cut:])
        exchange.close()

    return behave


def repeats(head: bytes, piece: bytes, seconds: float) -> Behaviour:
    """The head, then the same piece again and again, until the client hangs up."""

    async def behave(exchange: Exchange) -> None:
        exchange.close()
        gone = asyncio.ensure_future(exchange.gone())
        try:
            await exchange.send(head)
            while not gone.done():
                await exchange.send(piece)
                await asyncio.wait([gone], timeout=seconds)
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    return behave


_OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def silent(exchange: Exchange) -> None:
    await exchange.gone()


trickling_body = repeats(_OK_HEAD + b"Content-Length: 100000\r\n\r\n", b" ", 0.02)
trickling_headers = repeats(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.02)
endless_headers = repeats(b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n", 0.05)
endless_interim = repeats(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.02)
flood_of_headers = repeats(b"HTTP/1.1 200 OK\r\n", b"".join(b"X-%d: z\r\n" % n for n in range(4000)), 0.0)
huge_body = repeats(_OK_HEAD + b"Content-Length: 1073741824\r\n\r\n", b" " * 2**18, 0.0)
huge_chunked_body = repeats(
    _OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"40000\r\n" + b" " * 0x40000 + b"\r\n", 0.0
)


@functools.cache
def _bomb() -> bytes:
    """200 MiB of spaces in about 200 KiB."""
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join(packer.compress(b" " * 2**20) for _ in range(200)) + packer.flush()


async def gzip_bomb(exchange: Exchange) -> None:
    await exchange.answer(200, _bomb(), Content_Encoding="gzip")


gzipped = answers(200, gzip.compress(completion()), Content_Encoding="gzip")
broken_gzip = answers(200, gzip.compress(completion())[:-20], Content_Encoding="gzip")

"""The simulated judge server: `python -m rewardcore.testing.server --port 0 --latency 0.2`, in a process of its own.

It prints one JSON line with its port when it is ready, and ends when its stdin closes or its parent dies, so
that no run leaves an orphan. HTTP/1.1 on a bare asyncio.Protocol, because a client's figure must not measure
the server; /_stats says what it cost. Not a web server: no TLS, no chunked requests, no streaming.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import signal
import sys
import threading
import time
from http import HTTPStatus
from typing import cast

import orjson

from .latency import LatencyModel, Profile
from .replies import SimulatedJudge, write_error

MAXIMUM_HEAD = 64 * 1024
MAXIMUM_BODY = 64 * 1024 * 1024
PARENT_CHECK_SECONDS = 1.0
HEADS = {
    status.value: b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n" % (status, status.phrase.encode())
    for status in HTTPStatus
}


class Service:
    """What all connections share: the judge, the loop's clock, and how late timers fired."""

    def __init__(self, judge: SimulatedJudge, loop: asyncio.AbstractEventLoop) -> None:
        self.judge = judge
        self.loop = loop
        self.started = time.monotonic()
        self.late_seconds = 0.0

    def stats(self) -> dict[str, object]:
        """CPU and wall seconds count from the start of the process, whatever is reset: take differences."""
        return {
            "requests": self.judge.requests,
            "in_flight": self.judge.in_flight,
            "peak_in_flight": self.judge.peak_in_flight,
            "statuses": {str(status): count for status, count in self.judge.statuses.items()},
            "late_seconds": self.late_seconds,
            "cpu_seconds": time.process_time(),
            "wall_seconds": time.monotonic() - self.started,
        }

    def page(self, method: bytes, path: bytes) -> tuple[int, bytes]:
        """Everything but judging."""
        match method, path:
            case b"GET", b"/health":
                return 200, b"{}"
            case b"GET", b"/v1/models":
                name = self.judge.model or "judge"
                model = {"id": name, "object": "model", "created": 0, "owned_by": "bench"}
                return 200, orjson.dumps({"object": "list", "data": [model]})
            case b"GET", b"/_stats":
                return 200, orjson.dumps(self.stats())
            case b"POST", b"/_reset":
                self.judge.reset()
                self.late_seconds = 0.0
                return 200, b"{}"
        where = f"{method.decode('latin-1')} {path.decode('latin-1')}"
        return 404, write_error(404, f"there is no {where}; the base URL ends in /v1")


class Connection(asyncio.Protocol):
    """One keep-alive connection. A second request waits unread until the first is answered."""

    transport: asyncio.Transport

    def __init__(self, service: Service) -> None:
        self.service = service
        self.buffer = b""
        self.closing = False
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def connection_lost(self, error: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.service.judge.leave()

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        while self.buffer and self.timer is None and not self.closing and self._take():
            pass

    def _take(self) -> bool:
        """Serve the request at the front of the buffer; False when it is not all there yet."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return len(self.buffer) > MAXIMUM_HEAD and self._refuse(431)
        head = self.buffer[:end].lower() + b"\r\n"
        if b"\r\ntransfer-encoding:" in head:
            return self._refuse(411)
        length = 0
        mark = head.find(b"\r\ncontent-length:")
        if mark >= 0:
            digits = head[mark + 17 : head.index(b"\r\n", mark + 2)].strip()
            if not digits.isdigit():
                return self._refuse(400)
            length = int(digits)
            if length > MAXIMUM_BODY:
                return self._refuse(413)
        start, stop = end + 4, end + 4 + length
        if len(self.buffer) < stop:
            return False
        line = self.buffer[: self.buffer.index(b"\r\n")].split(b" ")
        if len(line) != 3:
            return self._refuse(400)
        body, self.buffer = self.buffer[start:stop], self.buffer[stop:]
        self.closing = b"\r\nconnection: close" in head or line[2] == b"HTTP/1.0"
        if line[0] == b"POST" and line[1] == b"/v1/chat/completions":
            self._judge(body)
        else:
            status, page = self.service.page(line[0], line[1])
            self._send(status, (), page)
        return True

    def _judge(self, body: bytes) -> None:
        service = self.service
        now = service.loop.time()
        status, seconds, headers, reply = service.judge.arrive(body, now)
        if seconds > 0:
            due = now + seconds
            self.timer = service.loop.call_at(due, self._reply, due, status, headers, reply)
        else:
            service.judge.leave()
            self._send(status, headers, reply)

    def _reply(self, due: float, status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        self.timer = None
        self.service.late_seconds += self.service.loop.time() - due
        self.service.judge.leave()
        self._send(status, headers, body)
        if self.buffer:
            self.data_received(b"")

    def _send(self, status: int, headers: tuple[tuple[str, str], ...], body: bytes) -> None:
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers).encode() if headers else b""
        if self.closing:
            extra += b"connection: close\r\n"
        self.transport.write(b"%s%scontent-length: %d\r\n\r\n%s" % (HEADS[status], extra, len(body), body))
        if self.closing:
            self.transport.close()

    def _refuse(self, status: int) -> bool:
        """Answer what cannot be read and hang up, since where the next request starts is not known."""
        self.closing = True
        message = f"{HTTPStatus(status).phrase}: send Content-Length and a body"
        self._send(status, (), write_error(status, message))
        return False


def stop_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    """Stop the loop once stdin closes; or once the parent is gone, should a fork of it keep stdin open."""
    parent = os.getppid()

    def watch_stdin() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(loop.stop)

    def watch_parent() -> None:
        if os.getppid() != parent:
            loop.stop()
        loop.call_later(PARENT_CHECK_SECONDS, watch_parent)

    threading.Thread(target=watch_stdin, daemon=True).start()
    watch_parent()


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rewardcore.testing.server",
        description="A simulated judge on 127.0.0.1; it ends when its stdin closes.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port (%(default)s)")
    parser.add_argument("--model", help="the only model name to serve; any other is a 404")
    parser.add_argument("--seed", type=int, default=0, help="of the latency model (%(default)s)")
    Profile.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        profile = Profile.from_arguments(options)
    except ValueError as error:
        parser.error(str(error))
    loop = new_event_loop()
    service = Service(SimulatedJudge(LatencyModel(profile, options.seed), options.model), loop)
    try:
        listening = loop.create_server(lambda: Connection(service), "127.0.0.1", options.port, backlog=4096)
        server = loop.run_until_complete(listening)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        print(
            f"rewardcore.testing.server: port {options.port} cannot be used ({os.strerror(error.errno)}):"
            " choose another with --port, or --port 0 for any free one",
            file=sys.stderr,
        )
        return 2
    stop_with_parent(loop)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, loop.stop)
    print(orjson.dumps({"port": server.sockets[0].getsockname()[1]}).decode(), flush=True)
    loop.run_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())

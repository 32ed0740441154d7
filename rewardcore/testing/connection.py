"""HTTP/1.1 to the simulated judge, on a bare asyncio.Protocol: a client's figure must not measure the server.

Not a web server: no TLS, no chunked requests, no streaming. It does not listen; `server` does.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import cast

import orjson

from .latency import Profile
from .replies import SimulatedJudge, write_error
from .script import Step

MAXIMUM_HEAD = 64 * 1024
MAXIMUM_BODY = 64 * 1024 * 1024
HEADS = {
    status.value: b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n" % (status, status.phrase.encode())
    for status in HTTPStatus
}


class Service:
    """What all connections share: the judge, the loop's clock, how many they are, and how late timers fired."""

    def __init__(self, judge: SimulatedJudge, loop: asyncio.AbstractEventLoop) -> None:
        self.judge = judge
        self.loop = loop
        self.started = time.monotonic()
        self.late_seconds = 0.0
        self.connections_open = self.connections_opened = 0

    def stats(self) -> dict[str, object]:
        """CPU and wall seconds count from the start of the process, whatever is reset: take differences."""
        return {
            "requests": self.judge.requests,
            "in_flight": self.judge.in_flight,
            "peak_in_flight": self.judge.peak_in_flight,
            "statuses": {str(status): count for status, count in self.judge.statuses.items()},
            "connections_open": self.connections_open,
            "connections_opened": self.connections_opened,
            "late_seconds": self.late_seconds,
            "cpu_seconds": time.process_time(),
            "wall_seconds": time.monotonic() - self.started,
        }

    def page(self, method: bytes, path: bytes, body: bytes) -> tuple[int, bytes]:
        """Everything but judging. Pages that begin with an underscore are for whoever runs the server."""
        match method, path:
            case b"GET", b"/health":
                return 200, b"{}"
            case b"GET", b"/v1/models":
                name = self.judge.model or "judge"
                model = {"id": name, "object": "model", "created": 0, "owned_by": "rewardcore"}
                return 200, orjson.dumps({"object": "list", "data": [model]})
            case b"GET", b"/_stats":
                return 200, orjson.dumps(self.stats())
            case b"POST", b"/_reset":
                self.judge.reset(Profile(**orjson.loads(body)) if body else None)
                self.late_seconds = 0.0
                self.connections_opened = 0
                return 200, b"{}"
            case b"POST", b"/_script":
                text, steps = orjson.loads(body)
                self.judge.script.tell(text, [Step(*step) for step in steps])
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
        self.is_counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.is_counted = True
        self.service.connections_open += 1
        self.service.connections_opened += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.service.connections_open -= self.is_counted
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
            if line[1].startswith(b"/_"):
                self._leave_uncounted()
            status, page = self.service.page(line[0], line[1], body)
            self._send(status, (), page)
        return True

    def _leave_uncounted(self) -> None:
        """Whoever asks for the counters is no client."""
        self.service.connections_open -= self.is_counted
        self.service.connections_opened -= self.is_counted
        self.is_counted = False

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

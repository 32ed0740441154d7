"""Promises of the simulated server: real HTTP, clear refusals, honest counters, and never an orphan."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.virtual import VirtualClock
from rewardcore.testing.connection import MAXIMUM_BODY, Connection, Service
from rewardcore.testing.latency import LatencyModel, Profile
from rewardcore.testing.profiles import PROFILES, named
from rewardcore.testing.replies import SimulatedJudge, expected_score
from rewardcore.testing.server_process import (
    SaturatedServer,
    ServerDied,
    SimulatedServer,
    Stats,
    refuse_if_saturated,
    saturation,
)

ROOT = Path(__file__).resolve().parents[2]
NET = 60.0  # seconds after which a test that waits for an event gives up; never reached when all is well
MESSAGES = [{"role": "user", "content": "How good is it? <score>X</score>"}]
BODY = orjson.dumps({"model": "judge", "messages": MESSAGES})
POST = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


@pytest.fixture(scope="module")
def server() -> Iterator[SimulatedServer]:
    with SimulatedServer(model="judge") as running:
        yield running


def exchange(server: SimulatedServer, request: bytes) -> bytes:
    """Send raw bytes and read until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=NET) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


class Wire:
    """A transport that remembers what was written to it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.is_closed = True


def connect(loop: asyncio.AbstractEventLoop, profile: Profile) -> tuple[Connection, Wire]:
    connection, wire = Connection(Service(SimulatedJudge(LatencyModel(profile)), loop)), Wire()
    connection.connection_made(cast(asyncio.Transport, wire))
    return connection, wire


def test_it_answers_as_an_openai_compatible_server(server: SimulatedServer) -> None:
    with httpx.Client(base_url=server.base_url, trust_env=False) as client:
        for _ in range(2):  # the second one on the same connection
            reply = client.post("/chat/completions", content=BODY)
            assert reply.status_code == 200
            assert f"<score>{round(expected_score(MESSAGES) * 9 + 1)}</score>" in reply.text
        assert [model["id"] for model in client.get("/models").json()["data"]] == ["judge"]
        assert client.get(f"http://127.0.0.1:{server.port}/health").status_code == 200


@pytest.mark.parametrize(
    ("path", "content", "status", "hint"),
    [
        ("/v1/chat/completions", BODY.replace(b'"judge"', b'"typo"'), 404, "'typo'"),
        ("/chat/completions", BODY, 404, "/v1"),
        ("/v1/chat/completions", b"{", 400, "not JSON"),
        ("/v1/chat/completions", b"", 400, "not JSON"),
        ("/v1/chat/completions", b'{"model": "judge"}', 400, "'messages'"),
    ],
)
def test_a_wrong_request_is_refused_with_the_reason(
    server: SimulatedServer, path: str, content: bytes, status: int, hint: str
) -> None:
    reply = httpx.post(f"http://127.0.0.1:{server.port}{path}", content=content, trust_env=False)
    assert reply.status_code == status
    assert hint in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAXIMUM_BODY + 1), 413),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
        (b"GET /health HTTP/1.0\r\n\r\n", 200),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", 200),
    ],
)
def test_what_cannot_be_followed_by_another_request_ends_the_connection(
    server: SimulatedServer, request_: bytes, status: int
) -> None:
    assert exchange(server, request_).startswith(b"HTTP/1.1 %d " % status)


def test_a_refusal_carries_its_headers() -> None:
    with SimulatedServer(Profile(rate_limit=0.001, retry_after=7)) as limited:
        url = f"{limited.base_url}/chat/completions"
        first, second = (httpx.post(url, content=BODY, trust_env=False) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 429)
    assert second.headers["retry-after"] == "7"
    assert second.json()["error"]["type"] == "rate_limit_exceeded"


def test_counters_count_judgements_only_and_reset_keeps_the_clocks(server: SimulatedServer) -> None:
    server.reset()
    for _ in range(3):
        httpx.post(f"{server.base_url}/chat/completions", content=BODY, trust_env=False)
    before = server.stats()
    assert (before.requests, before.in_flight, before.peak_in_flight) == (3, 0, 1)
    assert before.statuses == {"200": 3}
    server.reset()
    after = server.stats()
    assert after.requests == 0
    assert after.wall_seconds > before.wall_seconds
    assert after.cpu_seconds >= before.cpu_seconds > 0


def test_connections_are_counted_and_who_asks_for_the_count_is_none() -> None:
    with SimulatedServer() as server:
        with httpx.Client(base_url=server.base_url, trust_env=False) as one, httpx.Client(trust_env=False) as two:
            for _ in range(3):
                one.post("/chat/completions", content=BODY)
            two.get(f"http://127.0.0.1:{server.port}/health")
            stats = server.stats()
            assert (stats.connections_opened, stats.connections_open) == (2, 2)
            server.reset()
            one.post("/chat/completions", content=BODY)  # over the connection that it has
            stats = server.stats()
            assert (stats.connections_opened, stats.connections_open) == (0, 2)
        give_up = time.monotonic() + NET
        while server.stats().connections_open:  # the server sees them close in its own time
            assert time.monotonic() < give_up
        assert server.stats().connections_opened == 0


def test_a_reset_may_bring_another_temper_and_the_next_goes_back(server: SimulatedServer) -> None:
    url = f"{server.base_url}/chat/completions"
    server.reset("rate-limited", latency=0.0, rate_limit=0.001)
    assert [httpx.post(url, content=BODY, trust_env=False).status_code for _ in range(2)] == [200, 429]
    server.reset()
    assert [httpx.post(url, content=BODY, trust_env=False).status_code for _ in range(2)] == [200, 200]


def test_every_named_profile_says_what_it_is_like_and_starts() -> None:
    for name, (profile, line) in PROFILES.items():
        assert named(name) == profile
        assert 0 < len(line) < 80
    with SimulatedServer("flaky") as flaky:
        assert flaky.arguments[:2] == ["--latency", "0.5"]


def test_replies_leave_when_the_latency_is_over_and_in_the_order_of_the_requests() -> None:
    clock = VirtualClock()

    async def two_in_one_packet() -> tuple[list[float], Service]:
        connection, wire = connect(asyncio.get_running_loop(), Profile(latency=2.0))
        connection.data_received(POST + POST)
        left = []
        for _ in range(2):
            seen = len(wire.sent)
            while len(wire.sent) == seen:
                await asyncio.sleep(0.5)
            left.append(clock.now())
        return left, connection.service

    left, service = clock.run(two_in_one_packet())
    assert left == [2.0, 4.0]
    assert (service.judge.peak_in_flight, service.judge.in_flight, service.late_seconds) == (1, 0, 0.0)


def test_a_client_that_hangs_up_is_no_longer_in_flight() -> None:
    clock = VirtualClock()

    async def hang_up() -> tuple[int, int, list[bytes]]:
        connection, wire = connect(asyncio.get_running_loop(), Profile(latency=2.0))
        connection.data_received(POST)
        waiting = connection.service.judge.in_flight
        connection.connection_lost(None)
        await asyncio.sleep(10)
        return waiting, connection.service.judge.in_flight, wire.sent

    assert clock.run(hang_up()) == (1, 0, [])


@given(st.lists(st.integers(0, 2 * len(POST)), max_size=8))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts: list[int]) -> None:
    clock = VirtualClock()
    stream, edges = POST + POST, [0, *sorted(cuts), 2 * len(POST)]

    async def feed(pieces: list[bytes]) -> bytes:
        connection, wire = connect(asyncio.get_running_loop(), Profile())
        for piece in pieces:
            connection.data_received(piece)
        return b"".join(wire.sent)

    whole = clock.run(feed([POST, POST]))
    assert whole.count(b"HTTP/1.1 200 OK") == 2
    assert clock.run(feed([stream[a:b] for a, b in pairwise(edges)])) == whole


QUIET = Stats(0, 0, 0, {}, 0, 0, 0.0, cpu_seconds=1.0, wall_seconds=10.0)


@pytest.mark.parametrize(("cpu", "is_refused"), [(1.0, False), (1.9, False), (1.95, True), (2.0, True)])
def test_a_figure_is_refused_when_the_servers_core_was_full(cpu: float, is_refused: bool) -> None:
    after = replace(QUIET, cpu_seconds=cpu, wall_seconds=11.0)
    assert saturation(QUIET, after) == pytest.approx(cpu - 1.0)
    if is_refused:
        with pytest.raises(SaturatedServer, match="--latency"):
            refuse_if_saturated(QUIET, after)
    else:
        refuse_if_saturated(QUIET, after)


def run_server(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rewardcore.testing.server", *arguments]
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("arguments", "hint"), [(["--error-status", "200"], "--error-status"), (["--latency", "-1"], "--latency")]
)
def test_a_wrong_flag_is_named_and_the_exit_code_is_2(arguments: list[str], hint: str) -> None:
    with run_server(*arguments) as process:
        _, stderr = process.communicate(timeout=NET)
    assert process.returncode == 2
    assert hint in stderr


def test_a_port_in_use_is_one_line_that_names_the_flag(server: SimulatedServer) -> None:
    with run_server("--port", str(server.port)) as process:
        _, stderr = process.communicate(timeout=NET)
    assert process.returncode == 2
    assert stderr.count("\n") == 1
    assert f"port {server.port}" in stderr
    assert "--port" in stderr


def test_an_early_death_is_reported_with_the_end_of_the_log(server: SimulatedServer) -> None:
    taken = SimulatedServer(port=server.port)
    with pytest.raises(ServerDied, match=r"exit code 2[^$]*choose another with --port"), taken:
        pass


def test_a_death_during_the_run_is_reported_at_the_next_question() -> None:
    with SimulatedServer() as doomed:
        os.kill(doomed.process_id, signal.SIGKILL)
        os.waitid(os.P_PID, doomed.process_id, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ServerDied, match="exit code -9"):
            doomed.stats()


def test_a_server_that_is_not_ready_in_time_is_stopped_and_reported() -> None:
    with pytest.raises(ServerDied, match="not ready after 0 s"), SimulatedServer(ready_timeout=0):
        pass


def test_after_the_block_the_process_is_gone_even_after_an_exception() -> None:
    running = SimulatedServer()
    process_ids = []

    def interrupted() -> None:
        with running:
            process_ids.append(running.process_id)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(process_ids[0], 0)


def test_it_ends_when_its_stdin_closes() -> None:
    with run_server() as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert "port" in orjson.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(timeout=NET) == 0


PARENT = """
import os, sys
from rewardcore.testing.server_process import SimulatedServer
server = SimulatedServer().__enter__()
if "fork" in sys.argv and os.fork() == 0:
    sys.stdin.read()   # a child of the parent, which keeps the server's stdin open and outlives the parent
    os._exit(0)
print(server.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("argument", ["", "fork"])
def test_it_dies_with_its_parent(argument: str) -> None:
    command = [sys.executable, "-c", PARENT, argument]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=NET) as connection:
            parent.kill()
            assert connection.recv(1) == b""  # the server is gone: the kernel hangs up for it

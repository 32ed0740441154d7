"""The deadline is total and whoever waits can be told to go, whatever part of a connection stalls; few open files."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import rewardcore as rc
from rewardcore.http.transports import Transport
from rewardcore.reply import Answer, Reply
from tests.modes.conftest import ASYNCIO_MODES, MODES, Opener
from tests.modes.deadlines import hurried
from tests.modes.hostile_server import (
    Behaviour,
    Exchange,
    HostileServer,
    answers,
    breathing,
    eventually,
    held,
    ok,
    silent,
)
from tests.modes.lookups import IN_PROCESS_MODES, judge_where
from tests.modes.scripts import run_script

#: Whatever stalls does so for a minute. Who is not held up by it comes first, on however busy a machine.
DEADLINE, STALLED = 1.0, 60.0

# The deadline is total.


@contextlib.contextmanager
def deaf(address: str, port: int = 0) -> Iterator[int]:
    """A port that takes no connection and refuses none: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(16):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
            if not select.select([], [caller], [], 0.2)[1]:  # this one waits already, and so will every other
                break
        else:
            pytest.skip("this system takes more connections than a listener allows")
        yield listener.getsockname()[1]


@contextlib.contextmanager
def deaf_addresses(count: int) -> Iterator[tuple[list[str], int]]:
    """Several addresses, all deaf on one port."""
    addresses = [f"127.0.0.{number}" for number in range(2, 2 + count)]
    for _ in range(20):  # a port that is free on the first may be taken on another
        with contextlib.ExitStack() as stack:
            try:
                port = stack.enter_context(deaf(addresses[0]))
                for address in addresses[1:]:
                    stack.enter_context(deaf(address, port))
            except OSError:
                continue
            yield addresses, port
            return
    pytest.fail("no port is free on every address")


@pytest.mark.skipif(sys.platform != "linux", reason="only there is all of 127.0.0.0/8 local, and a full queue silent")
@pytest.mark.parametrize("mode", IN_PROCESS_MODES)
def test_the_deadline_covers_every_address_of_a_name_together(mode: str) -> None:
    """A client that gives each address a deadline of its own is busy for three minutes, and the script is ended."""
    with deaf_addresses(6) as (addresses, port):
        run = judge_where(
            ["judge.test"], 30 * addresses, MODES[mode], f"http://judge.test:{port}/v1", deadline=DEADLINE
        )
    assert run.asked
    assert run.statuses == ["timeout", "timeout"], run


@pytest.mark.parametrize("mode", IN_PROCESS_MODES)
def test_the_deadline_covers_looking_up_the_name(mode: str) -> None:
    run = judge_where(["judge.test"], [], MODES[mode], "http://judge.test:8000/v1", deadline=DEADLINE)
    assert run.asked
    assert run.statuses == ["timeout", "timeout"], run
    assert not run.waited_for


class ReluctantReader:
    """A port where requests are read a little at a time, or never, and are not answered; in the end it gives up."""

    def __init__(self, bytes_at_a_time: int) -> None:
        self.callers, self.bytes_read, self.has_given_up = 0, 0, False
        self._bytes_at_a_time = bytes_at_a_time
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reluctant-reader")

    def __enter__(self) -> ReluctantReader:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()

    def _read(self) -> None:
        connections: list[socket.socket] = []
        gives_up = time.monotonic() + STALLED
        while not self._over.wait(0.01) and not self.has_given_up:
            self.has_given_up = time.monotonic() >= gives_up
            with contextlib.suppress(OSError):
                if select.select([self._listener], [], [], 0)[0]:
                    connections.append(self._listener.accept()[0])
                    self.callers += 1
            for connection in connections if self._bytes_at_a_time else []:
                with contextlib.suppress(OSError):
                    self.bytes_read += len(connection.recv(self._bytes_at_a_time, socket.MSG_DONTWAIT))
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("bytes_at_a_time", [0, 2**13], ids=["reads nothing", "reads a little"])
def test_the_deadline_covers_sending_the_request(mode: str, bytes_at_a_time: int, open_judge: Opener) -> None:
    """It is more than the system's own buffers take. A little is enough for every single write to get on in time."""
    sample = rc.Sample("p", "r" * 2**25)
    with (
        ReluctantReader(bytes_at_a_time) as reader,
        open_judge(mode, rc.Endpoint(f"http://127.0.0.1:{reader.port}/v1", "judge")) as judge,
    ):
        for seconds in (DEADLINE, 4 * DEADLINE, 16 * DEADLINE):  # it may pass before a worker has started
            if not reader.callers:
                with hurried(judge, seconds):
                    (verdict,) = judge.judge([sample])
        judge.close()
        assert reader.callers
        assert not reader.has_given_up
        assert reader.bytes_read < 2**24, "it ended in the middle of the request"
    assert verdict.status == "timeout", verdict


# What it goes through.


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "asyncio-child-process"])
def test_every_attempt_goes_through_what_the_caller_puts_around_the_transport(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    sent: list[bytes] = []

    class Witness:
        def __init__(self, transport: Transport) -> None:
            self.transport, self.close = transport, transport.close

        async def send(self, body: bytes) -> Reply | Answer:
            sent.append(body)
            return await self.transport.send(body)

    script = server.script(answers(503), ok)
    with open_judge(mode, wrap_transport=Witness) as judge:
        (verdict,) = judge.judge(script.samples(1))
    assert (verdict.status, verdict.attempts, script.requests) == ("ok", 2, 2)
    assert len(sent) == 2
    assert sent[0] == sent[1]


def test_what_is_put_around_the_transport_cannot_reach_another_process(open_judge: Opener) -> None:
    with pytest.raises(rc.ConfigurationError, match="wrap_transport must be left out where another process judges"):
        open_judge("asyncio-child-process", wrap_transport=lambda transport: transport)


# Whoever waits can be told to go.


class Patient:
    """As `behaviour`, but not for ever: who cannot be told to go is answered at last, and the test fails."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.has_given_up = behaviour, False

    async def __call__(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(STALLED):
                await self.behaviour(exchange)
        except TimeoutError:
            self.has_given_up = True
            await exchange.answer(400, "no more patience")


def test_a_short_wait_is_short_and_what_was_held_is_not_paid_twice(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    patient = Patient(held)
    script = server.script(patient)
    with open_judge(mode, deadline=2 * STALLED) as judge:
        pending = judge.submit(script.samples(1))

        def is_held() -> bool:
            with pytest.raises(TimeoutError, match="goes on"):
                pending.result(timeout=0.2)
            return script.requests > 0

        eventually(is_held, "the request is on the wire")  # the first wait may be too short for a worker to start
        assert is_held()
        assert not patient.has_given_up
        assert not pending.done()
        script.release()
        (verdict,) = pending.result(timeout=STALLED)
        assert judge.stats.requests == 1
    assert (verdict.status, verdict.attempts, script.requests) == ("ok", 1, 1)


@contextlib.contextmanager
def waiting_for(pending: rc.Pending) -> Iterator[concurrent.futures.Future[list[rc.Verdict]]]:
    """Another thread waits for the batch."""
    with concurrent.futures.ThreadPoolExecutor(1, "waiting") as threads:
        yield threads.submit(pending.result)


def test_cancel_lets_go_of_whoever_waits_for_a_silent_request(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    patient = Patient(silent)
    script, fine = server.script(patient), server.script(ok)
    with open_judge(mode, deadline=2 * STALLED) as judge:
        pending = judge.submit(script.samples(2))
        with waiting_for(pending) as waiter:
            script.saw(1)
            pending.cancel()
            with pytest.raises(concurrent.futures.CancelledError):
                waiter.result()
        assert not patient.has_given_up
        assert pending.done()
        assert [verdict.status for verdict in judge.judge(fine.samples(2))] == ["ok", "ok"]


def test_close_lets_go_of_whoever_waits_for_a_silent_request(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    patient = Patient(silent)
    script = server.script(patient)
    with open_judge(mode, deadline=2 * STALLED) as judge, waiting_for(judge.submit(script.samples(2))) as waiter:
        script.saw(1)
        judge.close()
        verdicts = waiter.result()
    assert [verdict.status for verdict in verdicts] == ["failed", "failed"]
    assert all(str(verdict.error).startswith("JudgeClosed") for verdict in verdicts), verdicts
    eventually(lambda: script.in_flight == 0, "the server sees the connection end")
    assert not patient.has_given_up


# The limit on open files.

FEW_FILES = """
import json, logging, resource, sys
import rewardcore as rc

def main(base_url, marker, options):
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    logging.basicConfig(level=logging.WARNING)
    endpoint = rc.Endpoint(base_url, "judge")
    samples = [rc.Sample(f"[[{marker}]]", str(number)) for number in range(400)]
    with rc.open_judge("asyncio", endpoint, max_concurrent=1000, cache=None, deadline=120.0, **options) as judge:
        statuses = [verdict.status for verdict in judge.judge(samples)]
        print(json.dumps([statuses.count("ok"), judge.stats.retried]))

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
"""


@pytest.mark.parametrize("mode", ASYNCIO_MODES)
def test_more_requests_than_files_may_be_open_is_one_warning_and_no_failure(mode: str, server: HostileServer) -> None:
    script = server.script(breathing)
    output, errors, code = run_script(FEW_FILES, server.base_url, script.marker, json.dumps(MODES[mode][1]))
    assert (json.loads(output or "null"), code) == ([400, 0], 0), errors[-2000:]
    assert script.requests == 400
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith("WARNING:")
    assert "max_concurrent" in errors
    assert "ulimit -n" in errors

"""Requests that hang: each is asked again and in the end given up, and none holds up another."""

from __future__ import annotations

import pytest

from tests.modes.conftest import ASYNCIO_MODES, Opener
from tests.modes.hostile_server import Behaviour, Exchange, HostileServer, breathing, ok, silent


@pytest.mark.parametrize("place", [0, 4, 8])
def test_one_that_hangs_while_others_get_through_is_asked_again_max_retries_times(
    mode: str, place: int, open_judge: Opener, server: HostileServer
) -> None:
    hanging, samples = server.script(silent), server.script(breathing).samples(12)
    samples.insert(place, hanging.sample())
    with open_judge(mode, request_timeout=0.5, max_retries=2, deadline=60.0, max_concurrent=4) as judge:
        verdicts = judge.judge(samples)
    given_up = verdicts.pop(place)
    assert [verdict.status for verdict in verdicts] == ["ok"] * 12
    assert (given_up.status, given_up.attempts, hanging.requests) == ("failed", 3, 3)
    assert given_up.error is not None
    assert given_up.error.startswith("Stalled: no reply from 127.0.0.1")
    assert given_up.error.endswith("asked 3 times")


@pytest.mark.parametrize("place", [0, 2])
def test_in_sync_one_that_hangs_costs_no_other_though_nothing_is_known_of_the_endpoint(
    place: int, open_judge: Opener, server: HostileServer
) -> None:
    samples = server.script(ok).samples(4)
    samples.insert(place, server.script(silent).sample())
    with open_judge("sync", deadline=8.0) as judge:
        verdicts = judge.judge(samples)
    assert verdicts.pop(place).status == "timeout"
    assert [verdict.status for verdict in verdicts] == ["ok"] * 4


def swallows(first: int, count: int) -> Behaviour:
    """Fine, but for so many requests from the `first` on, which a partition has swallowed."""

    async def behave(exchange: Exchange) -> None:
        swallowed = first <= exchange.script.requests < first + count
        await (silent if swallowed else breathing)(exchange)

    return behave


@pytest.mark.parametrize(
    ("mode", "first", "deadline"), [("asyncio-aiohttp", 1, 40.0), *((mode, 150, 150.0) for mode in ASYNCIO_MODES)]
)
def test_a_partition_that_swallows_all_that_is_in_the_air_costs_no_verdict(
    mode: str, first: int, deadline: float, open_judge: Opener, server: HostileServer
) -> None:
    """Default settings, first call. At the very start nothing is known: one of them steps aside at half of the time."""
    script = server.script(swallows(first, 60))
    with open_judge(mode, deadline=deadline) as judge:
        verdicts = judge.judge(script.samples(500))
    assert [verdict.status for verdict in verdicts] == ["ok"] * 500
    assert script.requests <= 580


def test_a_partition_in_mode_process_costs_no_verdict(open_judge: Opener, server: HostileServer) -> None:
    script = server.script(swallows(40, 2))
    with open_judge("process", deadline=60.0) as judge:
        verdicts = judge.judge(script.samples(100))
    assert [verdict.status for verdict in verdicts] == ["ok"] * 100

"""Peers are measured as they would be used: opened once, warm, and with the same work as we do."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from bench import client_cost
from bench.client_cost import CONCURRENCY, OURS, check_work
from bench.peers import PEERS
from bench.runner import UnequalWork
from rewardcore.testing import Profile, SimulatedServer

HERE = [name for name, peer in PEERS.items() if all(map(importlib.util.find_spec, peer.needs))]
BODY = b'{"model": "judge", "messages": [{"role": "user", "content": "%d"}]}'


@pytest.mark.parametrize("name", HERE)
def test_a_peer_keeps_its_connections_from_one_round_to_the_next(name):
    """Slow enough replies that all places are taken, in the first round as in the second."""
    bodies = [BODY % number for number in range(8)]

    async def two_rounds() -> tuple[list[str], list[str], int]:
        async with PEERS[name].open(server.endpoint) as ask:
            first = await ask(bodies, 4)
            server.reset()
            second = await ask(bodies, 4)
            return first, second, server.stats().connections_opened

    with SimulatedServer(Profile(latency=0.2)) as server:
        first, second, opened = asyncio.run(two_rounds())
        seen = server.stats()
    assert opened == 0
    assert (seen.requests, seen.peak_in_flight) == (8, 4)
    assert first == second
    assert len(set(first)) > 1


def test_every_client_is_asked_the_same_number_of_times():
    costs = client_cost.measure(["bare aiohttp"], rounds=2, count=70)
    assert {name: len(cost.rounds) for name, cost in costs.items()} == {OURS: 2, "bare aiohttp": 2}
    assert costs[OURS].ratio_to(costs["bare aiohttp"]) > 0


@pytest.mark.parametrize(
    ("requests", "opened", "complaint"),
    [(70, CONCURRENCY, "openai opened 60 connections"), (69, 0, "69 requests of openai reached"), (140, 0, "where 70")],
)
def test_a_cold_client_or_other_work_is_no_result(requests, opened, complaint):
    with pytest.raises(UnequalWork, match=complaint):
        check_work("openai", requests, opened, due=70)

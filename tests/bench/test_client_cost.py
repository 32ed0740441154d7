"""Peers are measured as they would be used: opened once, warm, and with the same work as we do."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from bench import client_cost
from bench.client_cost import OURS
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
    assert costs[OURS].opened < 60  # it was warm


def test_a_client_that_asks_more_often_than_it_was_told_is_no_result(monkeypatch):
    """End to end: as many as there are samples in a round, and not one more."""
    round = client_cost.Client.round
    monkeypatch.setattr(client_cost.Client, "round", lambda self, server, due: round(self, server, due - 1))
    with pytest.raises(UnequalWork, match="70 requests of rewardcore reached the endpoint where 69 were due"):
        client_cost.measure([], rounds=1, count=70)

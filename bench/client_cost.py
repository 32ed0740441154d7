"""What judging costs the client: CPU per judged sample at saturation, ours and the peers', in alternating rounds.

No latency and 60 at once, cache off, so that the client never waits. CPU time, not wall time, since the machine is
shared; and ratios within a round, since even CPU time moves with the neighbours' load.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import rewardcore
from bench.latency import Profile
from bench.peers import PEERS
from bench.runner import UnequalWork
from bench.scenarios import Scenario, samples_of
from bench.server_process import SimulatedServer
from rewardcore import Endpoint, Sample
from rewardcore.clock import SYSTEM_CLOCK
from rewardcore.request import RequestBuilder
from rewardcore.rubrics import QUALITY

CONCURRENCY = 60
SCENARIO = Scenario("client-cost", 2000, "asyncio", "loopback", profile=Profile())
OURS = "rewardcore"
T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """CPU seconds a sample, in each round."""

    client: str
    rounds: tuple[float, ...]

    @property
    def microseconds(self) -> float:
        return statistics.median(self.rounds) * 1e6

    def ratio_to(self, other: Cost) -> float:
        """The median over rounds of the ratio within a round."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True))


def measure(clients: list[str], rounds: int) -> dict[str, Cost]:
    """Each client in each round, ours first; peers must return the very texts that ours is scored on."""
    samples = samples_of(SCENARIO)
    with SimulatedServer(SCENARIO.profile, seed=SCENARIO.seed) as server, _loop() as loop:
        endpoint = Endpoint(server.base_url, model="judge")
        builder = RequestBuilder(endpoint, QUALITY)
        bodies = [builder.build(sample).body for sample in samples]
        options = {"max_concurrent": CONCURRENCY, "cache": None}
        spent: dict[str, list[float]] = {client: [] for client in [OURS, *clients]}
        with rewardcore.open_judge("asyncio", endpoint, **options) as judge:
            judge.judge([Sample("warm-up", str(place)) for place in range(CONCURRENCY)])
            verdicts = judge.judge(samples)
            if not all(verdict.status == "ok" for verdict in verdicts):
                raise UnequalWork(f"client-cost: {next(v for v in verdicts if v.status != 'ok')}")
            for client in clients:  # imports and first connections
                _ask_peer(loop, client, endpoint, bodies[:CONCURRENCY])
            for _ in range(rounds):
                spent[OURS].append(_cpu_per_item(lambda: judge.judge(samples), len(samples))[0])
                for client in clients:
                    few = bodies[: PEERS[client][1]]
                    cost, texts = _cpu_per_item(functools.partial(_ask_peer, loop, client, endpoint, few), len(few))
                    if texts != [verdict.text for verdict in verdicts[: len(few)]]:
                        raise UnequalWork(f"client-cost: {client} got other replies than {OURS}")
                    spent[client].append(cost)
    return {client: Cost(client, tuple(rounds)) for client, rounds in spent.items()}


def _cpu_per_item(work: Callable[[], T], items: int) -> tuple[float, T]:
    before = time.process_time()
    result = work()
    return (time.process_time() - before) / items, result


@contextlib.contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The kind of loop that ours runs on, so that uvloop favours nobody; one for all rounds, as a program would have.

    asyncio.Runner would wait for every task at its end, and litellm leaves one that never ends.
    """
    loop = SYSTEM_CLOCK.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def _ask_peer(loop: asyncio.AbstractEventLoop, client: str, endpoint: Endpoint, bodies: list[bytes]) -> list[str]:
    ask, _ = PEERS[client]
    return loop.run_until_complete(ask(endpoint, bodies, CONCURRENCY))

"""What judging costs the client: CPU per judged sample at saturation, ours and the peers', in alternating rounds.

No latency and 60 at once, cache off, so that the client never waits. CPU time, not wall time, since the machine is
shared; and ratios within a round, since even CPU time moves with the neighbours' load. Each client runs in a
process of its own (bench.client_child), and all must get the same texts.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.records import ROOT
from bench.runner import UnequalWork
from bench.scenarios import Scenario
from rewardcore.testing.latency import Profile
from rewardcore.testing.server_process import SimulatedServer

CONCURRENCY = 60
SCENARIO = Scenario("client-cost", 2000, "asyncio", "loopback", profile=Profile())
OURS = "rewardcore"
#: Requests a round: enough to measure the client, few enough for the slow ones.
COUNTS = {OURS: 2000, "bare aiohttp": 2000, "openai": 300, "litellm": 150, "gather over httpx": 150}
#: Ratios as large as these peers' are plain after two rounds.
SLOW_ROUNDS = 2


@dataclass(frozen=True)
class Cost:
    """CPU seconds a sample, in each round."""

    client: str
    rounds: tuple[float, ...]

    @property
    def microseconds(self) -> float:
        return statistics.median(self.rounds) * 1e6

    def ratio_to(self, other: Cost) -> float:
        """The median of the ratio within a round, over the rounds that both ran."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=False))


class Client:
    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.cpu: list[float] = []
        self.digests: set[str] = set()
        self._process = process
        self._answer()

    def round(self) -> None:
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        answer = json.loads(self._answer())
        self.cpu.append(answer["cpu"])
        self.digests.add(answer["digest"])

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client {self.name!r} ended with code {self._process.wait()}; see its errors above")
        return line


@contextlib.contextmanager
def _started(name: str, base_url: str) -> Iterator[Client]:
    command = [sys.executable, "-m", "bench.client_child", name, base_url, str(COUNTS[name])]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield Client(name, process)
        finally:
            process.kill()


def measure(peers: list[str], rounds: int) -> dict[str, Cost]:
    """Each client in each round, ours first."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SimulatedServer(SCENARIO.profile, seed=SCENARIO.seed))
        clients = [stack.enter_context(_started(name, server.base_url)) for name in (OURS, *peers)]
        for number in range(rounds):
            for client in clients:
                if number < SLOW_ROUNDS or COUNTS[client.name] == SCENARIO.n:
                    client.round()
    for count in set(COUNTS.values()):
        alike = [client for client in clients if COUNTS[client.name] == count]
        if len(set().union(*(client.digests for client in alike))) > 1:
            raise UnequalWork(f"client-cost: {', '.join(client.name for client in alike)} got different replies")
    return {client.name: Cost(client.name, tuple(client.cpu)) for client in clients}

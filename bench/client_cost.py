"""What judging costs the client: CPU per judged sample at saturation, ours and the peers', in alternating rounds.

No latency and 60 at once, cache off, so that the client never waits. CPU time, not wall time, since the machine is
shared; and ratios within a round, since even CPU time moves with the neighbours' load. Each client runs in a process of
its own (bench.client_child), is opened once, asked the same in every round, and must get the same texts. Some clients
hang up after a few idle seconds, which the others' turns take, so each gets its connections back before the clock runs;
how many it opens even then is told.
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
#: Enough in a round to measure the quickest client, few enough for the slowest.
SCENARIO = Scenario("client-cost", 400, "asyncio", "loopback", profile=Profile(), version=2)
OURS = "rewardcore"


@dataclass(frozen=True)
class Cost:
    """CPU seconds a sample, in each round; `opened` are the connections that were opened in all of them."""

    client: str
    rounds: tuple[float, ...]
    opened: int = 0

    @property
    def microseconds(self) -> float:
        return statistics.median(self.rounds) * 1e6

    def ratio_to(self, other: Cost) -> float:
        """The median of the ratio within a round."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True))


class Client:
    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.cpu: list[float] = []
        self.digests: set[str] = set()
        self.opened = 0
        self._process = process
        self._answer()

    def round(self, server: SimulatedServer, due: int) -> None:
        self._ask("warm up")
        server.reset()
        answer = json.loads(self._ask("measure"))
        seen = server.stats()
        if seen.requests != due:
            raise UnequalWork(
                f"client-cost: {seen.requests} requests of {self.name} reached the endpoint where {due} were due"
            )
        self.opened += seen.connections_opened
        self.cpu.append(answer["cpu"])
        self.digests.add(answer["digest"])

    def _ask(self, what: str) -> str:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client {self.name!r} ended with code {self._process.wait()}; see its errors above")
        return line


@contextlib.contextmanager
def _started(name: str, base_url: str, count: int) -> Iterator[Client]:
    command = [sys.executable, "-m", "bench.client_child", name, base_url, str(count)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield Client(name, process)
        finally:
            process.kill()


def measure(peers: list[str], rounds: int, count: int = SCENARIO.n) -> dict[str, Cost]:
    """Each client in each round, ours first."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SimulatedServer(SCENARIO.profile, seed=SCENARIO.seed))
        clients = [stack.enter_context(_started(name, server.base_url, count)) for name in (OURS, *peers)]
        for _ in range(rounds):
            for client in clients:
                client.round(server, count)
    if len(set().union(*(client.digests for client in clients))) > 1:
        raise UnequalWork(f"client-cost: {', '.join(client.name for client in clients)} got different replies")
    return {client.name: Cost(client.name, tuple(client.cpu), client.opened) for client in clients}

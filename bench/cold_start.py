"""What a new process pays before its first reward: import, first batch and second batch, in CPU seconds."""

from __future__ import annotations

import json
import subprocess
import sys

from bench.records import ROOT
from bench.scenarios import Scenario
from rewardcore.testing.latency import Profile
from rewardcore.testing.server_process import SimulatedServer

SCENARIO = Scenario("cold-start", 16, "asyncio", "loopback", profile=Profile(latency=0.02))
STAGES = ("import", "first batch", "second batch")
CLIENTS = ("rewardcore sync", "rewardcore asyncio")
PEERS = ("openai", "litellm")


def measure(clients: tuple[str, ...], rounds: int) -> dict[str, dict[str, float]]:
    """client → stage → the least CPU seconds seen: its neighbours only ever slow a start down."""
    best: dict[str, dict[str, float]] = {}
    with SimulatedServer(SCENARIO.profile) as server:
        for _ in range(rounds):
            for client in clients:
                child = [sys.executable, "-m", "bench.cold_start_child", client, server.base_url, str(SCENARIO.n)]
                done = subprocess.run(child, cwd=ROOT, capture_output=True, text=True, check=True)
                seen = json.loads(done.stdout.splitlines()[-1])
                known = best.setdefault(client, seen)
                best[client] = {stage: min(known[stage], seen[stage]) for stage in STAGES}
    return best

"""Long runs: memory while 100,000 samples stream through, and how fast a warm SQLite cache serves.

Memory is read in a process of its own (`python -m bench.endurance BASE_URL SAMPLES`), whose resident size is printed as
the stream goes on: the slope between the first fifth and the end is what each sample leaves behind.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rewardcore
from bench.records import ROOT
from bench.scenarios import Scenario, samples_of
from rewardcore import Endpoint, Sample
from rewardcore.testing.latency import Profile
from rewardcore.testing.server_process import SimulatedServer

STREAM = Scenario("stream-100k", 100_000, "asyncio", "loopback", profile=Profile())
WARM_CACHE = Scenario("warm-cache", 10_000, "asyncio", "loopback", profile=Profile(), cache=True)


@dataclass(frozen=True)
class Growth:
    """Resident bytes after a fifth of the stream and at its end."""

    samples: int
    early: int
    late: int

    @property
    def bytes_per_sample(self) -> float:
        return (self.late - self.early) / (0.8 * self.samples)


def measure_stream(samples: int = STREAM.n) -> Growth:
    with SimulatedServer(STREAM.profile) as server:
        child = [sys.executable, "-m", "bench.endurance", server.base_url, str(samples)]
        done = subprocess.run(child, cwd=ROOT, capture_output=True, text=True, check=True)
    return Growth(samples, *json.loads(done.stdout))


def measure_warm_cache(rounds: int = 3) -> float:
    """Verdicts a second out of a SQLite file that holds every reply; the best round, since neighbours only slow it."""
    samples = samples_of(WARM_CACHE)
    rates = []
    with tempfile.TemporaryDirectory() as directory, SimulatedServer(WARM_CACHE.profile) as server:
        endpoint, path = Endpoint(server.base_url, model="judge"), Path(directory) / "judge.sqlite"
        with rewardcore.open_judge("asyncio", endpoint, cache=path) as judge:
            judge.judge(samples)
        with rewardcore.open_judge("asyncio", endpoint, cache=path) as judge:
            for _ in range(rounds):
                started = time.perf_counter()
                verdicts = judge.judge(samples)
                rates.append(len(verdicts) / (time.perf_counter() - started))
            if judge.stats.requests or not all(verdict.cached for verdict in verdicts):
                raise AssertionError("the warm cache sent requests")
    return max(rates)


def resident_bytes() -> int:
    """Of this process, at this moment."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS in /proc/self/status: memory is measured on Linux only")


async def _stream(base_url: str, count: int) -> list[int]:
    def samples() -> Iterator[Sample]:
        for index in range(count):
            yield Sample(f"Question {index}", f"Answer {index}: " + "and so on " * 20)

    sizes = []
    with rewardcore.open_judge("asyncio", Endpoint(base_url, model="judge"), cache=None) as judge:
        done = 0
        async for _, verdict in judge.astream(samples()):
            if verdict.status != "ok":
                raise AssertionError(f"the stream met {verdict}")
            done += 1
            if done in (count // 5, count):
                sizes.append(resident_bytes())
    return sizes


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_stream(sys.argv[1], int(sys.argv[2])))))

"""What a call costs the client: CPU a sample for one call of n, and for n calls of one, as n grows.

A trainer that judges each trajectory by itself makes thousands of calls of one sample, which wait side by side, are
cancelled, or expire: each must cost the same however many there are. CPU time, in a process for each shape
(`python -m bench.call_cost SHAPE ROUNDS SIZE...`); the sizes take turns, and ratios are those within a round.
What the first requests cost (60 connections, the same for every n) is paid before the clock starts. The garbage
collector runs as it does in a trainer: what calls leave behind for it is part of their cost.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import rewardcore
from bench.client_cost import CONCURRENCY, Cost
from bench.records import ROOT
from bench.runner import UnequalWork
from bench.scenarios import Scenario, samples_of
from rewardcore import Endpoint, Judge, Sample, Verdict
from rewardcore.clock import Clock
from rewardcore.testing.latency import Profile
from rewardcore.testing.server_process import SimulatedServer

SIZES = (500, 1000, 2000, 4000, 8000)
SCENARIOS = {n: Scenario(f"call-cost-{n}", n, "asyncio", "loopback", profile=Profile()) for n in SIZES}
#: An endpoint that keeps every place taken.
SILENT = Profile(latency=3600.0)
#: How many times its cost at the smallest size a call may cost at the largest.
PROMISED = 1.3
IDLE_SECONDS = 0.05


class StoppableClock(Clock):
    """While it stands still, whatever is submitted has the same deadline, and none comes."""

    stands_at: float | None = None

    def now(self) -> float:
        return super().now() if self.stands_at is None else self.stands_at


@dataclass(frozen=True)
class Caller:
    """Makes the calls, and says what has become of each sample."""

    judge: Judge
    clock: StoppableClock

    def one_call(self, samples: list[Sample]) -> list[str]:
        return [verdict.status for verdict in self.judge.judge(samples)]

    def submit_each(self, samples: list[Sample]) -> list[str]:
        pending = [self.judge.submit([sample]) for sample in samples]
        return [each.result()[0].status for each in pending]

    def ajudge_each(self, samples: list[Sample]) -> list[str]:
        async def gather() -> list[list[Verdict]]:
            return await asyncio.gather(*(self.judge.ajudge([sample]) for sample in samples))

        return [verdict.status for (verdict,) in asyncio.run(gather())]

    def cancel_each(self, samples: list[Sample]) -> list[str]:
        """Nobody keeps what is cancelled."""
        statuses = []
        for sample in samples:
            pending = self.judge.submit([sample])
            pending.cancel()
            statuses.append("cancelled" if pending.done() else "waiting")
        _wait_until_idle()
        return statuses

    def let_each_expire(self, samples: list[Sample]) -> list[str]:
        pending = [self.judge.submit([sample]) for sample in samples]
        self.clock.stands_at = None
        return [each.result()[0].status for each in pending]


@dataclass(frozen=True)
class Shape:
    """How the calls are made, and what must become of every sample."""

    calls: Callable[[Caller, list[Sample]], list[str]]
    status: str
    is_answered: bool = True
    deadline: float = 300.0


SHAPES = {
    "one call of n": Shape(Caller.one_call, "ok"),
    "n × submit([one])": Shape(Caller.submit_each, "ok"),
    "n × ajudge([one])": Shape(Caller.ajudge_each, "ok"),
    "n cancels": Shape(Caller.cancel_each, "cancelled", is_answered=False),
    "n that expire": Shape(Caller.let_each_expire, "timeout", is_answered=False, deadline=0.2),
}


def measure(rounds: int, sizes: Sequence[int] = SIZES) -> dict[str, dict[int, Cost]]:
    """shape → n → what a sample costs. What is not answered costs little, is noisier for it, and gets a round more."""
    costs = {}
    for name, shape in SHAPES.items():
        count = rounds if shape.is_answered else rounds + 1
        child = [sys.executable, "-m", "bench.call_cost", name, str(count), *map(str, sizes)]
        done = subprocess.run(child, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        costs[name] = {n: Cost(name, tuple(seconds)) for n, seconds in zip(sizes, json.loads(done.stdout), strict=True)}
    return costs


def run_series(name: str, rounds: int, sizes: Sequence[int]) -> list[list[float]]:
    """CPU seconds a sample: for each size, those of every round."""
    shape, samples = SHAPES[name], samples_of(SCENARIOS[SIZES[-1]])
    with SimulatedServer(Profile() if shape.is_answered else SILENT) as server:
        run_once(shape, server, samples[: sizes[0]])  # imports
        costs: dict[int, list[float]] = {n: [] for n in sizes}
        for number in range(rounds):
            for n in sizes if number % 2 == 0 else reversed(sizes):
                costs[n].append(run_once(shape, server, samples[:n]))
    return list(costs.values())


def run_once(shape: Shape, server: SimulatedServer, samples: list[Sample]) -> float:
    """CPU seconds a sample, of a judge whose connections are open; where nobody answers, whose places are taken."""
    clock = StoppableClock()
    if not shape.is_answered:
        clock.stands_at = clock.now()
    options = {"max_concurrent": CONCURRENCY, "cache": None, "clock": clock, "deadline": shape.deadline}
    with rewardcore.open_judge("asyncio", Endpoint(server.base_url, model="judge"), **options) as judge:
        first = judge.submit([Sample("warm-up", str(place)) for place in range(CONCURRENCY)])
        _wait_until_idle()
        gc.collect()
        before = server.stats()
        started = time.process_time()
        statuses = shape.calls(Caller(judge, clock), samples)
        seconds = time.process_time() - started
        requests = server.stats().requests - before.requests
    first.result()
    places = 0 if shape.is_answered else CONCURRENCY
    check_work(shape, len(samples), Counter(statuses), requests, before.in_flight == places)
    return seconds / len(samples)


def check_work(shape: Shape, n: int, statuses: dict[str, int], requests: int, was_ready: bool) -> None:
    """Every sample met its fate, and only those that were to be answered were sent."""
    due = n if shape.is_answered else 0
    if statuses != {shape.status: n}:
        raise UnequalWork(f"call-cost: {n} samples should be {shape.status!r}, and are {dict(statuses)}")
    if requests != due:
        raise UnequalWork(f"call-cost: {requests} requests reached the endpoint where {due} were due")
    if not was_ready:
        raise UnequalWork("call-cost: the first requests were not where they should be when the calls began")


def _wait_until_idle() -> None:
    """Until the judge's thread has nothing left to do: only CPU time that stands still says so in every version."""
    spent = float("inf")
    while spent > IDLE_SECONDS / 50:
        before = time.process_time()
        time.sleep(IDLE_SECONDS)
        spent = time.process_time() - before


if __name__ == "__main__":
    print(json.dumps(run_series(sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]])))

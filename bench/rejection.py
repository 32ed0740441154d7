"""Rejection sampling as the command runs it: near the ideal, without a barrier, and for a million rows.

The real `reject_sample` against the simulated server; seconds are those between a server's being there and its being
done with, so neither the report nor the look at the rows is in them. A run by batches asks the same rollouts of so many
samples at a time, and waits for all of them before the next; one batch of everything is what the bare engine can do.
`python -m bench.rejection DIRECTORY BASE_URL` is the process whose start-up and memory are measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rewardcore
from bench.endurance import Growth, resident_bytes
from bench.peers import PEERS
from bench.records import ROOT
from bench.runner import UnequalWork
from bench.scenarios import REJECTION, REJECTION_RESUMED, REJECTION_STREAM, Scenario
from rewardcore import Endpoint
from rewardcore.clock import SYSTEM_CLOCK
from rewardcore.files.journal import Journal
from rewardcore.files.rows import open_rows
from rewardcore.http.request import RequestBuilder
from rewardcore.progress import Tell
from rewardcore.rejection import Address, Checkpoint, Plan, reject_sample
from rewardcore.rejection.problems import Problem
from rewardcore.rejection.results import Result
from rewardcore.rejection.rollouts import Asking, rollouts_of
from rewardcore.rejection.run import JOURNAL
from rewardcore.testing.server_process import SimulatedServer, refuse_if_saturated

#: Samples at once: what `--concurrency` is by default.
AT_ONCE = 8
CHECKPOINT = Checkpoint("policy")
#: Rows of the journal that are left to ask, so that a resumed run has something to start for.
_LEFT = 10


@dataclass(frozen=True)
class Sampled:
    """One run: its seconds, and what proves that another one did the same."""

    seconds: float
    requests: int
    digest: str


@dataclass(frozen=True)
class Resumed:
    """A run of so many finished rows that goes on: seconds until a server may be started, and until all is written."""

    rows: int
    start_seconds: float
    seconds: float
    peak_bytes: int


def measure(scenario: Scenario, samples_at_once: int, rounds: int) -> list[tuple[Sampled, Sampled]]:
    """Pairs of (the command's run, a run by batches of so many samples), one right after the other."""
    pairs = []
    with tempfile.TemporaryDirectory() as directory, SimulatedServer(scenario.profile, seed=scenario.seed) as server:
        before = server.stats()
        for number in range(rounds):
            one = sliding(scenario, server, Path(directory) / str(number))
            pairs.append((one, by_batches(scenario, server, samples_at_once)))
        refuse_if_saturated(before, server.stats())
    check_equal_work(scenario, [run for pair in pairs for run in pair])
    return pairs


def sliding(scenario: Scenario, server: SimulatedServer, directory: Path) -> Sampled:
    """As the command does it."""
    directory.mkdir()
    seconds = [0.0]

    @contextlib.contextmanager
    def timed(checkpoint: Checkpoint) -> Iterator[Address]:
        started = time.perf_counter()
        yield Address(Endpoint(server.base_url, checkpoint.name, api_key_env=None))
        seconds[0] = time.perf_counter() - started

    _begin_again(server)
    reject_sample(
        [CHECKPOINT],
        write_rows(scenario, directory),
        Plan(num_rollout=scenario.responses, concurrency=AT_ONCE),
        serve=timed,
        output_dir=directory,
    )
    with (directory / CHECKPOINT.directory / "reject_sampling_results.json").open() as file:
        return Sampled(seconds[0], server.stats().requests, digest_of(json.load(file)))


def by_batches(scenario: Scenario, server: SimulatedServer, samples_at_once: int = AT_ONCE) -> Sampled:
    """With a barrier after every so many samples, and everything else equal."""
    problems = [Problem(place, "", row["problem"], row["answer"]) for place, row in enumerate(rows_of(scenario))]
    plan = Plan(num_rollout=scenario.responses, concurrency=AT_ONCE)
    documents = []
    _begin_again(server)
    started = time.perf_counter()
    endpoint = plan.asking(Endpoint(server.base_url, CHECKPOINT.name, api_key_env=None))
    with rewardcore.open_judge(
        "asyncio", endpoint, rubric=Asking(), max_concurrent=plan.max_concurrent, cache=None
    ) as judge:
        for first in range(0, len(problems), samples_at_once):
            batch = problems[first : first + samples_at_once]
            verdicts = iter(judge.judge([each for problem in batch for each in rollouts_of(problem, plan.num_rollout)]))
            for problem in batch:
                result = Result(problem, plan.num_rollout)
                for rollout in range(plan.num_rollout):
                    result.add(rollout, next(verdicts))
                documents.append(result.document())
    return Sampled(time.perf_counter() - started, server.stats().requests, digest_of(documents))


def measure_bare_loop(scenario: Scenario, rounds: int) -> list[float]:
    """Seconds of a bare aiohttp loop with as many places and bodies built beforehand: what this machine allows."""
    plan = Plan(num_rollout=scenario.responses, concurrency=AT_ONCE)
    with SimulatedServer(scenario.profile, seed=scenario.seed) as server:
        endpoint = plan.asking(Endpoint(server.base_url, CHECKPOINT.name, api_key_env=None))
        build = RequestBuilder(endpoint, Asking()).build
        problems = [Problem(place, "", row["problem"], row["answer"]) for place, row in enumerate(rows_of(scenario))]
        bodies = [build(each).body for problem in problems for each in rollouts_of(problem, plan.num_rollout)]

        async def ask() -> float:
            started = time.perf_counter()
            async with PEERS["bare aiohttp"].open(endpoint) as client:
                await client(bodies, plan.max_concurrent)
            return time.perf_counter() - started

        seconds = []
        for _ in range(rounds):
            _begin_again(server)
            loop = SYSTEM_CLOCK.new_event_loop()
            try:
                seconds.append(loop.run_until_complete(ask()))
            finally:
                loop.close()
            if server.stats().requests != scenario.requests:
                raise UnequalWork(f"{server.stats().requests} requests where {scenario.requests} were due")
    return seconds


def rows_of(scenario: Scenario) -> Iterator[dict[str, Any]]:
    for place in range(scenario.n // scenario.responses):
        yield {"problem": f"Problem {place}: how good is it, from 1 to 5?", "answer": 1.0 + place % 5}


def write_rows(scenario: Scenario, directory: Path) -> Path:
    path = directory / "rows.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows_of(scenario))
    return path


def digest_of(documents: Iterable[dict[str, Any]]) -> str:
    """Over every error, in order."""
    listing = "\n".join(f"{each['index']} {each['min_error']!r} {each['all_errors']}" for each in documents)
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def check_equal_work(scenario: Scenario, runs: list[Sampled]) -> None:
    for run in runs:
        if run.requests != scenario.requests:
            raise UnequalWork(f"{scenario.id}: {run.requests} requests where {scenario.requests} were due")
        if run.digest != runs[0].digest:
            raise UnequalWork(f"{scenario.id}: two runs give other results")


def _begin_again(server: SimulatedServer) -> None:
    server.reset()
    server.when("").says("I would say <answer>3</answer>")


def measure_resumed(rows: int = REJECTION_RESUMED.n) -> Resumed:
    with tempfile.TemporaryDirectory() as directory, SimulatedServer(REJECTION_RESUMED.profile) as server:
        _begin_again(server)
        finish_all_but_a_few(Path(directory), rows)
        started, seconds, _, peak = _child(Path(directory), server)
        if server.stats().requests != _LEFT:
            raise UnequalWork(f"{server.stats().requests} requests where {_LEFT} were left to ask")
    return Resumed(rows, started, seconds, peak)


def finish_all_but_a_few(directory: Path, rows: int) -> None:
    """As a killed run leaves it."""
    data = write_rows(_of_one_rollout(rows), directory)
    folder = directory / CHECKPOINT.directory
    folder.mkdir()
    configuration = _plan().configuration(CHECKPOINT, open_rows(str(data)).fingerprint)
    Journal(folder / JOURNAL, configuration).close()
    with (folder / JOURNAL).open("wb") as file:
        for place, row in enumerate(rows_of(_of_one_rollout(rows - _LEFT))):
            result = Result(Problem(place, "", row["problem"], row["answer"]), 1)
            error = abs(3.0 - row["answer"])
            result.add(0, rewardcore.Verdict("ok", error, "I would say <answer>3</answer>"))
            file.write(json.dumps(result.document()).encode() + b"\n")


def measure_stream(rows: int = REJECTION_STREAM.n) -> Growth:
    with tempfile.TemporaryDirectory() as directory, SimulatedServer(REJECTION_STREAM.profile) as server:
        _begin_again(server)
        write_rows(_of_one_rollout(rows), Path(directory))
        _, _, early, late = _child(Path(directory), server)
    return Growth(rows, early, late)


def _of_one_rollout(rows: int) -> Scenario:
    return Scenario("rows", rows, "asyncio", "loopback")


def _plan() -> Plan:
    return Plan(num_rollout=1, concurrency=REJECTION.max_concurrent)  # type: ignore[arg-type]  # a number, not "auto"


def _child(directory: Path, server: SimulatedServer) -> list[Any]:
    child = [sys.executable, "-m", "bench.rejection", str(directory), server.base_url]
    done = subprocess.run(child, cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def _run_here(directory: Path, base_url: str) -> list[float]:
    """Seconds until a server may be started, seconds in all, bytes after a fifth, bytes at the end of sampling."""
    started_at = 0.0
    sizes: list[int] = []

    @contextlib.contextmanager
    def serve(checkpoint: Checkpoint) -> Iterator[Address]:
        nonlocal started_at
        started_at = time.perf_counter()
        yield Address(Endpoint(base_url, checkpoint.name, api_key_env=None))

    @contextlib.contextmanager
    def watched(what: str) -> Iterator[Tell]:
        def tell(done: int, total: int | None, note: str) -> None:
            if not sizes and total and done >= total // 5:
                sizes.append(resident_bytes())

        yield tell
        if what == "samples":  # and not when the rows were looked at
            sizes.append(resident_bytes())

    began = time.perf_counter()
    reject_sample([CHECKPOINT], directory / "rows.jsonl", _plan(), serve=serve, output_dir=directory, showing=watched)
    return [started_at - began, time.perf_counter() - began, sizes[0], sizes[-1]]


if __name__ == "__main__":
    print(json.dumps(_run_here(Path(sys.argv[1]), sys.argv[2])))

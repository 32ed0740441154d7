"""Which limit suits an endpoint: `python -m bench.sweep --base-url URL --model NAME`, fixed ones beside "auto".

Every limit has a judge of its own, warm over all rounds; in each round all take their turn, in another order, on
samples that no server has seen, so that a noisy machine and a warm prefix cache are the same for all. It measures the
endpoint, not rewardcore: a limit that is refused is slower here, and that is meant. Every round leaves records, which
`bench.report` shows with their knee.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import rewardcore
from bench import records
from bench.endpoint_flags import add_endpoint_flags, count, parse
from bench.real import check_endpoint
from bench.records import Record
from bench.scenarios import Scenario, samples_of
from rewardcore import Endpoint, Judge, Sample

LIMITS: tuple[int | str, ...] = (8, 16, 32, 64, 128, "auto")
NAMED, SPEED, ASKED_AGAIN = "real-sweep-", "samples a second", "asked again"


def samples_for(n: int, turn: int) -> list[Sample]:
    scenario = Scenario("sweep", n, "asyncio", "real", seed=turn)
    return [Sample(f"[{turn}] {sample.prompt}", sample.response) for sample in samples_of(scenario)]


def records_of(
    endpoint: Endpoint, n: int, speeds: dict[int | str, list[float]], asked_again: dict[int | str, float]
) -> list[Record]:
    """The medians so far, by limit."""
    return [
        replace(each, base_url=endpoint.mask()(endpoint.base_url), model=endpoint.model)
        for limit, found in speeds.items()
        for scenario in [Scenario(f"{NAMED}{limit}", n, "asyncio", "real")]
        for each in (
            records.record(scenario, SPEED, median(found), "1/s", "higher", len(found)),
            records.record(scenario, ASKED_AGAIN, asked_again[limit], "of the requests", "lower", len(found)),
        )
    ]


def measure(
    endpoint: Endpoint,
    limits: list[int | str],
    n: int,
    rounds: int,
    deadline: float,
    tell: Callable[[list[Record]], object],
) -> dict[int | str, list[float]]:
    """Samples a second of every limit, round by round; a round in which not all were judged is an error.

    `tell` hears after each round what all until then come to.
    """
    found: dict[int | str, list[float]] = {limit: [] for limit in limits}
    with contextlib.ExitStack() as stack:
        judges: dict[int | str, Judge] = {
            limit: stack.enter_context(
                rewardcore.open_judge("asyncio", endpoint, max_concurrent=limit, cache=None, deadline=deadline)
            )
            for limit in limits
        }
        turn = 0
        for number in range(rounds + 1):  # the first is for warming up
            order = limits[number % len(limits) :] + limits[: number % len(limits)]
            for limit in order:
                turn += 1
                samples = samples_for(n, turn)
                started = time.perf_counter()
                verdicts = judges[limit].judge(samples)
                seconds = time.perf_counter() - started
                failures = [verdict for verdict in verdicts if verdict.status in ("failed", "timeout")]
                if failures:
                    raise RuntimeError(
                        f"{len(failures)} of {n} were not judged with {limit} at once: {failures[0].error}"
                    )
                if number:
                    found[limit].append(n / seconds)
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
            if number:
                spent = {limit: judge.stats for limit, judge in judges.items()}
                shares = {limit: stats.retried / stats.requests for limit, stats in spent.items()}
                tell(records_of(endpoint, n, found, shares))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description="Fixed limits beside auto, interleaved.")
    add_endpoint_flags(parser.add_argument, max_tokens=64)
    parser.add_argument("--limits", nargs="+", default=[str(limit) for limit in LIMITS], help="numbers, or auto")
    parser.add_argument("--samples", type=count, default=512, help="in a round, for each limit (%(default)s)")
    parser.add_argument("--rounds", type=count, default=3, help="besides the one for warming up (%(default)s)")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds for a round of a limit (%(default)s)")
    parser.add_argument(
        "--records", type=Path, default=records.FILE, metavar="FILE", help="where they go (%(default)s)"
    )
    options, endpoint = parse(parser, arguments)
    logging.getLogger("rewardcore").setLevel(logging.ERROR)  # replies that are cut short are meant here
    for limit in options.limits:
        if limit != "auto" and not (limit.isdecimal() and int(limit)):
            parser.error(f"--limits takes whole numbers above 0, or auto, not {limit!r}")
    limits = [limit if limit == "auto" else int(limit) for limit in options.limits]
    requests = options.samples * len(limits) * (options.rounds + 1)
    print(f"{requests} requests, at most {requests * options.max_tokens:,} completion tokens", file=sys.stderr)
    try:
        check_endpoint(endpoint)
        found = measure(
            endpoint,
            limits,
            options.samples,
            options.rounds,
            options.deadline,
            lambda those: records.write(those, options.records),
        )
    except (RuntimeError, ValueError, rewardcore.RewardcoreError) as error:
        print(f"bench.sweep: {error}", file=sys.stderr)
        return 1
    best = max(median(speeds) for limit, speeds in found.items() if limit != "auto" or len(found) == 1)
    print(f"{'at once':>8}  samples/s (median)  of the best fixed  rounds")
    for limit, speeds in found.items():
        rounds = " ".join(f"{speed:.0f}" for speed in speeds)
        print(f"{limit!s:>8}  {median(speeds):18.1f}  {median(speeds) / best:17.1%}  {rounds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

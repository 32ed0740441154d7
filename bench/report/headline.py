"""The few figures that stand first, large: each with its unit, how it was measured, and the command that makes it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.report import commands
from bench.report.newest import Newest
from bench.report.page import Card
from bench.report.tables import concurrency, gpu_wait, peers
from bench.scenarios import CLAIMS, REGISTRY
from bench.training_step import SHAPES

EXACT = "virtual time, exact"
#: The claim, and the peer, that stand for the rest.
CLAIM, PEER = CLAIMS[0], "openai"
BASELINE, AHEAD = "step-one-by-one", "step-verl-submitted"


def cards(newest: Newest) -> Iterator[Card]:
    """Those of them that there are figures for."""
    before, after = newest.value(CLAIM.before, "makespan"), newest.value(CLAIM.after, "makespan")
    if before and after:
        scenario = REGISTRY[CLAIM.after]
        yield Card(
            f"{before / after:.1f}",
            "×",
            "faster than one request after another",
            f"{scenario.n:,} samples of {scenario.profile.latency:g} s, {scenario.max_concurrent} at once:"
            f" {_duration(before)} become {_duration(after)}. Ideal: {CLAIM.ideal:.1f}×; claimed: {CLAIM.claimed:g}×.",
            EXACT,
            commands.VIRTUAL,
        )
    steps = {row["shape"]: row["seconds"] for row in gpu_wait.steps(newest).rows}
    ahead, baseline = steps.get(SHAPES[AHEAD].about), steps.get(SHAPES[BASELINE].about)
    if ahead is not None and baseline is not None:
        yield Card(
            f"{ahead:.1f}",
            "s",
            "that the GPUs wait for the judge in a step",
            f"{REGISTRY[AHEAD].n} trajectories, {SHAPES[AHEAD].about}; {SHAPES[BASELINE].about}: {baseline:,.0f} s.",
            EXACT,
            commands.STEPS,
        )
    endpoints = concurrency.of_the_best(newest).rows
    if endpoints:
        refused = max(row["refused"] or 0.0 for row in endpoints)
        yield Card(
            f"≥ {min(row['share'] for row in endpoints):.1f}",
            "%",
            "of the best fixed limit, found by itself",
            f'max_concurrent="auto" at {len(endpoints)} endpoints of every temper; at most {refused:.1f} % refused.',
            EXACT,
            commands.PROFILES,
        )
    clients = {row["client"]: row for row in peers.cpu(newest).rows}
    if PEER in clients:
        row = clients[PEER]
        yield Card(
            f"{row['times']:.0f}",
            "×",
            f"less client CPU a sample than {PEER}",
            "The same requests over sockets, 60 at once, every client warm; ratios within a round.",
            f"measured, {row['rounds']} rounds",
            commands.PEERS,
        )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 180 else f"{seconds:g} s"

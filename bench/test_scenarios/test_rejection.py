"""Rejection sampling: how near the ideal it comes, what a barrier would cost, and a million rows."""

from __future__ import annotations

from statistics import median

from bench import rejection
from bench.records import record
from bench.scenarios import REJECTION, REJECTION_RESUMED, REJECTION_STRAGGLERS, REJECTION_STREAM


def test_efficiency_of_100_samples_of_16_rollouts(once, results):
    pairs, bare = once(
        lambda: (rejection.measure(REJECTION, samples_at_once=100, rounds=5), rejection.measure_bare_loop(REJECTION, 5))
    )
    efficiencies = [REJECTION.ideal / run.seconds for run, _ in pairs]
    ratio = median(run.seconds / engine.seconds for run, engine in pairs)
    best, rounds = max(efficiencies), ", ".join(f"{each:.1%}" for each in efficiencies)
    floor = REJECTION.ideal / min(bare)
    lines = [
        f"8 samples at once   {best:.1%} of the ideal {REJECTION.ideal:.2f} s, 13 waves (rounds: {rounds})",
        f"                    {ratio:.2f} × the seconds of one bare call of all rollouts",
        f"a bare aiohttp loop   {floor:.1%} with bodies that were built beforehand: what this machine lets a client do",
    ]
    figures = [
        record(REJECTION, "efficiency", best, "of the ideal", "higher", len(pairs)),
        record(REJECTION, "seconds over one bare call", ratio, "×", "lower", len(pairs)),
        record(REJECTION, "efficiency of a bare aiohttp loop", floor, "of the ideal", "higher", len(bare)),
    ]
    results.note(
        "rejection sampling, 100 samples × 16 rollouts × 50 ms",
        lines,
        figures,
        "best of the rounds; a wave is one reply in each of the 128 places",
    )


def test_stragglers_hold_up_nobody_else(once, results):
    pairs = once(lambda: rejection.measure(REJECTION_STRAGGLERS, rejection.AT_ONCE, rounds=3))
    ratio = median(batches.seconds / sliding.seconds for sliding, batches in pairs)
    sliding, batches = (min(run.seconds for run in runs) for runs in zip(*pairs, strict=True))
    line = f"one sliding window {sliding:.2f} s, batch by batch {batches:.2f} s: {ratio:.1f} × as fast"
    figure = record(REJECTION_STRAGGLERS, "speed-up over batches", ratio, "×", "higher", len(pairs))
    results.note(
        "the same, one rollout in twenty ten times as slow",
        [line],
        [figure],
        "quickest round of each; the ratio is the median of those within a round",
    )


def test_a_million_finished_rows(once, results):
    found = once(rejection.measure_resumed)
    line = (
        f"{found.rows:,} finished rows: goes on after {found.start_seconds:.2f} s; everything is written after"
        f" {found.seconds:.1f} s; {found.peak_bytes / 2**20:.0f} MiB"
    )
    figure = record(REJECTION_RESUMED, "start-up", found.start_seconds, "s", "lower")
    results.note("a run that goes on", [line], [figure], "from the command's start to its first request")


def test_memory_of_a_long_run(once, results):
    growth = once(rejection.measure_stream)
    early, late = growth.early / 2**20, growth.late / 2**20
    line = f"{growth.samples:,} rows: {early:.1f} MiB after a fifth, {late:.1f} MiB at the end"
    figure = record(REJECTION_STREAM, "RSS growth", growth.bytes_per_sample, "bytes/row", "lower")
    results.note("memory of a long run", [line], [figure], "resident memory of the process that samples")

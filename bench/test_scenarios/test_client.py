"""What judging costs the client, cold and warm, and how near it comes to the ideal; peers in the same run."""

from __future__ import annotations

import importlib.util

import pytest

from bench import call_cost, client_cost, cold_start, endurance, main_thread
from bench.peers import PEERS
from bench.records import record
from bench.runner import loopback_stage, run
from bench.scenarios import Scenario
from rewardcore.testing.latency import Profile

INSTALLED_PEERS = [name for name, peer in PEERS.items() if all(map(importlib.util.find_spec, peer.needs))]
ROUNDS = 5
FULL_CONCURRENCY = Scenario("efficiency-1024", 1024, "asyncio", "loopback", profile=Profile(latency=0.2))


def test_cpu_per_sample_beside_the_peers(once, results):
    costs = once(lambda: client_cost.measure(INSTALLED_PEERS, rounds=ROUNDS))
    ours, scenario = costs[client_cost.OURS], client_cost.SCENARIO
    lines, figures = [], [record(scenario, "client CPU", ours.microseconds, "µs/sample", "lower", len(ours.rounds))]
    for name, cost in costs.items():
        told = f"{name:24} {cost.microseconds:8.0f} µs    rewardcore is {ours.ratio_to(cost):6.3f} × this"
        lines.append(f"{told}    {cost.opened:4} connections opened")
        if name != client_cost.OURS:
            metric = f"client CPU over {name}"
            figures.append(record(scenario, metric, ours.ratio_to(cost), "×", "lower", len(cost.rounds)))
    missing = [name for name in PEERS if name not in INSTALLED_PEERS]
    lines += [f"{name:24} is not installed: extra peers" for name in missing]
    title = f"client CPU a sample, 60 at once, no latency; every client warm, {ROUNDS} rounds of {scenario.n} requests"
    results.note(
        title,
        lines,
        figures,
        "medians of the rounds; ratios are those within a round; opened: in all rounds, by clients that were warm",
    )


def test_efficiency_at_60_at_once(once, results):
    def measure():
        with loopback_stage(FULL_CONCURRENCY.profile, FULL_CONCURRENCY.seed) as stage:
            return [run(FULL_CONCURRENCY, stage).efficiency for _ in range(3)]

    efficiencies = once(measure)
    lines = [f"asyncio (aiohttp)    {max(efficiencies):.1%} of the ideal 3.6 s (rounds: {_percents(efficiencies)})"]
    figure = record(FULL_CONCURRENCY, "efficiency", max(efficiencies), "of the ideal", "higher", len(efficiencies))
    results.note("1024 × 200 ms, 60 at once", lines, [figure])


def test_cold_start(once, results):
    peers = tuple(name for name in cold_start.PEERS if importlib.util.find_spec(name))
    costs = once(lambda: cold_start.measure((*cold_start.CLIENTS, *peers), rounds=1))
    lines = [f"{'':20} " + "   ".join(f"{stage:>12}" for stage in cold_start.STAGES)]
    figures = []
    for client, stages in costs.items():
        lines.append(f"{client:20} " + "   ".join(f"{stages[stage] * 1e3:9.0f} ms" for stage in cold_start.STAGES))
        for stage in cold_start.STAGES:
            figures.append(record(cold_start.SCENARIO, f"{client}: {stage}", stages[stage], "CPU s", "lower"))
    legend = "import: the package alone; first batch: with opening and connecting; second batch: warm"
    results.note("cold start, 16 samples, CPU in a new process", lines, figures, legend)


@pytest.mark.parametrize("background", main_thread.BACKGROUNDS)
@pytest.mark.parametrize("load", main_thread.LOADS)
def test_main_thread_beside_judging(once, results, load, background):
    pairs = main_thread.BACKGROUNDS[background]
    effect = once(lambda: main_thread.measure(load, background, pairs))
    line = (
        f"{load:20} beside a {background:8} loses {effect.loss:6.1%} of its speed (noise {effect.noise:.1%}), "
        f"p99 step {effect.p99:5.2f} ×; judging at {effect.efficiency:6.1%} of the ideal; "
        f"submit {effect.submit_seconds * 1e3:.2f} ms; blocked {effect.blocked:.3f} s"
    )
    figures = [
        record(main_thread.SCENARIO, f"{load} beside {background}: {metric}", value, unit, direction, pairs)
        for metric, value, unit, direction in [
            ("speed lost", effect.loss, "", "lower"),
            ("noise of the control", effect.noise, "", "lower"),
            ("p99 step", effect.p99, "×", "lower"),
            ("efficiency", effect.efficiency, "of the ideal", "higher"),
            ("submit", effect.submit_seconds, "s", "lower"),
        ]
    ]
    legend = (
        "loses: against the same steps with nothing judged beside them, which moved by the noise; p99 step: judged over"
        " not judged; submit, blocked: what the two calls took of the caller's time"
    )
    results.note("the caller's own work beside 1024 × 200 ms", [line], figures, legend)


def test_memory_of_a_long_stream(once, results):
    growth = once(endurance.measure_stream)
    early, late = growth.early / 2**20, growth.late / 2**20
    line = f"{growth.samples:,} samples: {early:.1f} MiB after a fifth, {late:.1f} MiB at the end"
    figure = record(endurance.STREAM, "RSS growth", growth.bytes_per_sample, "bytes/sample", "lower")
    results.note("memory of a long stream", [line], [figure])


def test_warm_cache(once, results):
    rate = once(endurance.measure_warm_cache)
    figure = record(endurance.WARM_CACHE, "verdicts from a warm cache", rate, "1/s", "higher", 3)
    results.note("warm SQLite cache", [f"{rate:,.0f} verdicts a second"], [figure])


def test_many_calls_of_one_beside_one_call_of_many(once, results):
    costs = once(lambda: call_cost.measure(rounds=2))
    few, *_, many = call_cost.SIZES
    lines = [f"{'':20}" + "".join(f"{n:>9,}" for n in call_cost.SIZES) + f"   {many:,} / {few}"]
    figures = []
    for shape, by_size in costs.items():
        growth, rounds = by_size[many].ratio_to(by_size[few]), len(by_size[few].rounds)
        cells = "".join(f"{cost.microseconds:6.0f} µs" for cost in by_size.values())
        lines.append(f"{shape:20}{cells}   {growth:8.2f} ×")
        for n, cost in by_size.items():
            scenario = call_cost.SCENARIOS[n]
            figures.append(record(scenario, f"client CPU, {shape}", cost.microseconds, "µs/sample", "lower", rounds))
        metric = f"client CPU, {shape}: over n = {few}"
        figures.append(record(call_cost.SCENARIOS[many], metric, growth, "×", "lower", rounds))
    title = f"client CPU a sample by calls; promised: at most {call_cost.PROMISED} × from {few} to {many:,}"
    results.note(
        title, lines, figures, "a row for how calls are made, a column for how many samples; last: how it grows"
    )


def _percents(values):
    return ", ".join(f"{value:.1%}" for value in values)

"""The self mode at every size and batch size, where torch is installed: `tox -e bench-self`."""

from __future__ import annotations

import importlib.util

import pytest

from bench.records import record
from bench.scenarios import SELF, Scenario

HAS_TORCH = importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")
pytestmark = pytest.mark.skipif(not HAS_TORCH, reason="torch and transformers are not installed: tox -e bench-self")


@pytest.fixture
def self_mode():
    from bench import self_mode

    return self_mode


@pytest.mark.parametrize("scenario", SELF, ids=[scenario.id for scenario in SELF])
def test_torch(run_benchmark, scenario: Scenario):
    run_benchmark(scenario)


def test_padding(once, results, self_mode):
    by_length, at_random = once(lambda: self_mode.measure_padding(self_mode.generator()))
    line = f"{by_length:.1%} by length, {at_random:.1%} in random order"
    figure = self_mode.padding_record(by_length)
    results.note("padding, 1024 samples in batches of 8", [line], [figure])


def test_batching_gain(once, results, self_mode):
    gain = once(lambda: self_mode.measure_batching(pairs=5))
    figure = record(self_mode.SPEED, "batch 8 over batch 1", gain, "× samples/s", "higher", 5)
    results.note("batch size 8 against 1, 128 samples, paired", [f"{gain:.2f} × the samples a second"], [figure])


def test_overhead(once, results, self_mode):
    ratio = once(lambda: self_mode.measure_overhead(pairs=10))
    figure = record(self_mode.SPEED, "time over a bare generate loop", ratio, "×", "lower", 10)
    results.note("the self mode over a bare generate loop, paired", [f"{ratio - 1:+.1%}"], [figure])


def test_memory_per_batch_size(once, results, self_mode):
    memory = once(lambda: self_mode.measure_memory(self_mode.generator()))
    lines = [
        f"batch {peak.batch_size:2}: predicted {peak.total / 2**20:8.2f} MiB (weights {peak.weights / 2**20:.2f}, "
        f"KV cache {peak.kv_cache / 2**20:.2f}, activations {peak.activations / 2**20:.2f})"
        for peak in memory.predicted
    ]
    lines += [
        f"batch {peak.batch_size:2}: measured {peak.allocated / 2**20:8.2f} MiB allocated, "
        f"{peak.reserved / 2**20:.2f} MiB reserved, {peak.tokens_per_second:.0f} tokens/s"
        for peak in memory.measured
    ]
    lines.append(f"curve: {memory.curve.intercept / 2**20:.2f} MiB + {memory.curve.slope / 2**20:.3f} MiB a sample")
    results.note("memory by batch size", lines, memory.records())

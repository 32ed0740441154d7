"""The part vllm of a night, with a real engine in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from bench.harness import ROOT
from bench.nightly import parts
from bench.nightly.engine_memory import EngineMemory
from bench.nightly.parts import Order, run_child
from bench.scenarios import NIGHTLY_ENGINE

OFFLINE = "vllm-offline/self/16"


def test_an_engine_that_is_forked_starts_and_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the part's process holds a lock on when it forks, the engine would wait for without end."""
    monkeypatch.setattr(parts, "PATIENCE", 120.0)
    heard: list[dict] = []
    order = Order("vllm", "cpu", rounds=3, scenarios=(NIGHTLY_ENGINE.id, OFFLINE))
    run_child(order, heard.append, "tests.vllm.forking_child")
    told = {each["scenario"]: each["metric"] for message in heard for each in message.get("records", ())}
    assert told.keys() == {NIGHTLY_ENGINE.id, OFFLINE}


STUBBED = """
import os, sys, types
from bench.nightly import child
def measure(order, hear): hear({"tell": os.environ["VLLM_WORKER_MULTIPROC_METHOD"]})
child.importlib = types.SimpleNamespace(import_module=lambda name: types.SimpleNamespace(measure=measure))
sys.exit(child.main(sys.argv[1]))
"""


def test_a_part_tells_vllm_to_spawn_its_engine() -> None:
    """On a CPU vLLM does so by itself, on a GPU it forks."""
    unset = {name: value for name, value in os.environ.items() if name != "VLLM_WORKER_MULTIPROC_METHOD"}
    command = [sys.executable, "-c", STUBBED, json.dumps(asdict(Order("vllm", "cuda")))]
    environment = unset | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == {"tell": "spawn"}


@pytest.mark.parametrize(("is_added", "peak"), [("1", 300), ("0", 1000)])
def test_the_activation_peak_is_told_without_the_estimate_of_the_graphs(
    monkeypatch: pytest.MonkeyPatch, is_added: str, peak: int
) -> None:
    """vLLM adds it, where it is not told otherwise."""
    monkeypatch.setenv("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", is_added)
    worker = EngineMemory()
    worker.peak_activation_memory, worker.cudagraph_memory_estimate = 1000, 700  # type: ignore[attr-defined]
    assert worker.rewardcore_engine_memory() == {"activation peak": peak, "CUDA graphs, estimated": 700}

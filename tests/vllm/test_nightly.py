"""The part vllm of a night, with a real engine in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from bench.harness import ROOT
from bench.nightly import offline, parts, served
from bench.nightly.engine_memory import EngineMemory
from bench.nightly.parts import Order, run_child
from bench.scenarios import NIGHTLY_ENGINE

OFFLINE = "vllm-offline/self/16"


def test_an_engine_that_is_forked_starts_and_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the part's process holds a lock on when it forks, the engine would wait for without end."""
    monkeypatch.setattr(parts, "PATIENCE", 200.0)
    heard: list[dict] = []
    order = Order("vllm", "cpu", rounds=3, scenarios=(NIGHTLY_ENGINE.id, OFFLINE))
    run_child(order, heard.append, "tests.vllm.forking_child")
    told = {each["scenario"]: each["metric"] for message in heard for each in message.get("records", ())}
    assert told.keys() == {NIGHTLY_ENGINE.id, OFFLINE}


@pytest.mark.parametrize(
    ("order", "options"),
    [
        (Order("vllm", "cuda", scenarios=(OFFLINE,)), {"max_model_len": 512}),
        (
            Order("vllm", "cuda", scenarios=(OFFLINE,), max_tokens=300, gpu_memory_utilization=0.5),
            {"max_model_len": 768, "gpu_memory_utilization": 0.5},
        ),
        (Order("vllm", "cuda", scenarios=(OFFLINE,), max_tokens=1000), {"max_model_len": None}),  # the model's own
    ],
)
def test_the_engine_and_the_server_are_given_what_the_longest_prompt_and_its_reply_take(
    monkeypatch: pytest.MonkeyPatch, order: Order, options: dict[str, object]
) -> None:
    """With all of a long context, vLLM does not start on a smaller GPU."""
    given: dict[str, object] = {}

    class Enough(Exception):
        pass

    def engine(directory: object, **keywords: object) -> None:
        given.update(keywords)
        raise Enough

    monkeypatch.setattr(offline, "VllmGenerator", engine)
    with pytest.raises(Enough):
        offline.measure(order, lambda message: None)
    names = ("max_model_len", "gpu_memory_utilization")
    assert {name: given[name] for name in names if name in given} == options
    flags = [(f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None]
    told = served.arguments_of(order, given["max_model_len"])  # type: ignore[arg-type]
    assert told == ["--dtype", "float32", *(word for flag in flags for word in flag)]


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

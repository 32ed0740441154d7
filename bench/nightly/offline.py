"""The part vllm: vLLM's engine without a server, all samples in one call, in rounds; and what it sets aside.

Every round has samples of its own, since the engine remembers the prefixes of earlier ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.nightly.engine_memory import EngineMemory
from bench.nightly.judges import (
    Witness,
    counted_records,
    data_type_of,
    directory_of,
    engine_context,
    failed,
    hear_records,
    speed_records,
)
from bench.nightly.parts import Hear, Order
from bench.records import Record, record
from bench.runner import Run, Stage, UnequalWork, run
from bench.scenarios import NIGHTLY_ENGINE, Scenario
from bench.self_mode import RUBRIC
from rewardcore.local.vllm_generator import VllmGenerator


def measure(order: Order, hear: Hear) -> None:
    directory = directory_of(order)
    hear({"tell": f"vLLM loads {directory.name}"})
    generator = VllmGenerator(
        directory,
        dtype=data_type_of(order),
        max_new_tokens=order.max_tokens,
        max_model_len=engine_context(order, directory),
        enforce_eager=order.device == "cpu",
        worker_extension_cls=f"{EngineMemory.__module__}.{EngineMemory.__qualname__}",
        **({"gpu_memory_utilization": order.gpu_memory_utilization} if order.gpu_memory_utilization else {}),
    )
    try:
        hear_records(hear, _engine_records(generator))
        judge = Witness(generator, directory)
        stage = Stage(judge, options={"rubric": RUBRIC}, reset=judge.reset, counts=judge.counts)
        scenarios = [scenario for scenario in order.of_registry if scenario != NIGHTLY_ENGINE]
        for scenario in scenarios[:1]:
            run(replace(scenario, seed=0), stage)  # the first call compiles, and captures graphs
        for scenario in scenarios:
            try:
                _measure_one(order, scenario, stage, judge, hear)
            except UnequalWork as error:
                hear(failed(scenario, error))
    finally:
        generator.close()


def _measure_one(order: Order, scenario: Scenario, stage: Stage, judge: Witness, hear: Hear) -> None:
    runs: list[Run] = []
    for number in order.all_rounds:
        hear({"tell": f"{scenario.id}, round {number}"})
        drawn = replace(scenario, seed=scenario.seed + number - 1)
        runs.append(replace(run(drawn, stage), scenario=scenario, completion_tokens=judge.tokens()))
        hear_records(hear, speed_records(runs[-1:], f", round {number}"))
        if runs[-1].requests != scenario.requests or runs[-1].statuses.keys() & {"failed", "timeout"}:
            raise UnequalWork(f"{scenario.id}: {runs[-1].requests} calls, and verdicts {runs[-1].statuses}")
    hear_records(hear, [*counted_records(runs[0]), *speed_records(runs)])


def _engine_records(generator: VllmGenerator) -> list[Record]:
    engine: Any = generator._engine
    found: dict[str, int] = engine.collective_rpc("rewardcore_engine_memory")[0]
    cache = engine.llm_engine.vllm_config.cache_config
    records = [
        record(NIGHTLY_ENGINE, name, size, "bytes", "higher" if name == "KV cache" else "lower")
        for name, size in found.items()
    ]
    if cache.num_gpu_blocks:
        records.append(record(NIGHTLY_ENGINE, "KV blocks", cache.num_gpu_blocks, "blocks", "higher"))
        records.append(record(NIGHTLY_ENGINE, "tokens a KV block", cache.block_size, "tokens", "equal"))
    return records

"""The part torch: the self mode at every batch size, its speed in rounds, and its memory, predicted beside measured.

On CUDA the allocator says what a batch took; on the CPU every storage is counted, exactly. Batch sizes take turns in
each round, on the same samples: their verdicts must be the same in every round, and with the tiny judge at every size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from bench import self_mode
from bench.agreement import Measured
from bench.figures import MEMORY, exactly
from bench.nightly.judges import (
    CpuClock,
    Witness,
    counted_records,
    data_type_of,
    directory_of,
    failed,
    hear_records,
    speed_records,
)
from bench.nightly.parts import Hear, Order
from bench.records import Record, record
from bench.runner import Run, Stage, UnequalWork, check_equal_work, run
from bench.scenarios import BATCH_SIZES, Scenario
from rewardcore.clock import SYSTEM_CLOCK
from rewardcore.local.torch_generator import TorchGenerator
from rewardcore.memory.measured import measure as measure_on_gpu
from rewardcore.memory.predicted import Curve

#: What a batch allocates on a CPU, without the weights and with them; and what CUDA's allocator says.
COUNTED, WITH_WEIGHTS, ALLOCATED, RESERVED = "counted peak", "CPU peak", "CUDA peak allocated", "CUDA peak reserved"


def measure(order: Order, hear: Hear) -> None:
    torch.set_num_threads(1)
    directory = directory_of(order)
    judge = TorchGenerator(directory, order.device, data_type_of(order), order.max_tokens)
    hear({"tell": f"{directory.name} is loaded"})
    batched = [scenario for scenario in order.of_registry if scenario != MEMORY]
    if batched:
        _measure_speed(order, batched, Witness(judge, directory), hear)
    if MEMORY.id in order.scenarios:
        _measure_memory(order, judge, hear)


def _measure_speed(order: Order, scenarios: list[Scenario], judge: Witness, hear: Hear) -> None:
    clock = CpuClock() if order.device == "cpu" else SYSTEM_CLOCK
    stage = Stage(judge, clock, options={"rubric": self_mode.RUBRIC}, reset=judge.reset, counts=judge.counts)
    runs: dict[str, list[Run]] = {scenario.id: [] for scenario in scenarios}
    run(scenarios[-1], stage)  # kernels are chosen, and caches filled, in the first batches
    for number in order.all_rounds:
        for scenario in [each for each in scenarios if each.id in runs]:
            hear({"tell": f"{scenario.id}, round {number}"})
            judged = run(scenario, stage)
            if judge.ran_out_of_memory:
                hear({"unfit": scenario.id})
                del runs[scenario.id]
                continue
            runs[scenario.id].append(replace(judged, completion_tokens=judge.tokens()))
            hear_records(hear, speed_records(runs[scenario.id][-1:], f", round {number}"))
    found = [Measured(scenario, tuple(runs[scenario.id])) for scenario in scenarios if scenario.id in runs]
    for measured in found:
        baseline = found[0]
        try:
            _check(measured, baseline, is_strict=not order.model)
        except UnequalWork as error:
            hear(failed(measured.scenario, error))
        else:
            counted = counted_records(measured.runs[0])
            hear_records(hear, [*counted, *speed_records(measured.runs), *measured.beside(baseline)])


def _check(measured: Measured, baseline: Measured, is_strict: bool) -> None:
    """A user's model may give no score, and another one in another batch; the tiny judge does neither."""
    first, scenario = measured.runs[0], measured.scenario
    if len({judged.digest for judged in measured.runs}) > 1:
        raise UnequalWork(f"{scenario.id} scores the same samples differently in another round")
    if first.requests != scenario.requests:
        raise UnequalWork(
            f"{scenario.id} took {first.requests} calls where {scenario.requests} were due: a batch failed"
        )
    if not measured.has_every_reply:
        raise UnequalWork(f"{scenario.id} did not get every reply: {dict(measured.statuses)}")
    if is_strict:
        check_equal_work([baseline.runs[0], first])


def _measure_memory(order: Order, judge: TorchGenerator, hear: Hear) -> None:
    hear({"tell": "memory by batch size, predicted"})
    memory = self_mode.predict_memory(judge)
    predicted = {peak.batch_size: peak.total for peak in memory.predicted}
    weights = memory.predicted[0].weights
    by_length, _ = self_mode.measure_padding(judge)
    exact = [self_mode.padding_record(by_length), *memory.predicted_records()]
    hear_records(hear, exactly([*exact, record(MEMORY, "weights", weights, "bytes", "lower")]))
    hear({"tell": "memory by batch size, measured"})
    if order.device == "cpu":
        counted = self_mode.counted_records(judge)
        peaks = {each.metric: int(each.value) for each in counted}
        points = {size: peaks[f"{COUNTED}, batch {size}"] for size in BATCH_SIZES}
        whole = {size: weights + peak for size, peak in points.items()}
        all_in_all = [record(MEMORY, f"{WITH_WEIGHTS}, batch {size}", whole[size], "bytes", "lower") for size in whole]
        hear_records(hear, exactly([*counted, *_line(COUNTED, points), *all_in_all]))
        hear_records(hear, _over_predicted(whole, predicted))
        return
    lengths = (self_mode.longest_prompt(judge), order.max_tokens)
    for number in order.all_rounds:
        found = list(measure_on_gpu(judge.model, BATCH_SIZES, *lengths))
        points = {each.batch_size: each.allocated for each in found}
        rounds = [*_line(ALLOCATED, points), *_over_predicted(points, predicted)]
        for each in found:
            size, rate = each.batch_size, each.tokens_per_second
            rounds.append(record(MEMORY, f"{ALLOCATED}, batch {size}", each.allocated, "bytes", "lower"))
            rounds.append(record(MEMORY, f"{RESERVED}, batch {size}", each.reserved, "bytes", "lower"))
            rounds.append(record(MEMORY, f"tokens a second, batch {size}", rate, "1/s", "higher"))
        hear_records(hear, [replace(each, metric=f"{each.metric}, round {number}") for each in rounds])


def _over_predicted(points: dict[int, int], predicted: dict[int, int]) -> Iterator[Record]:
    """Neither better nor worse by itself: both of its sides are compared."""
    for size, peak in points.items():
        yield record(MEMORY, f"measured over predicted, batch {size}", peak / predicted[size], "×", "equal")


def _line(name: str, points: dict[int, int]) -> Iterator[Record]:
    if len(points) > 1:
        curve = Curve.through(list(points.items()))
        yield record(MEMORY, f"{name}, intercept", curve.intercept, "bytes", "lower")
        yield record(MEMORY, f"{name}, slope", curve.slope, "bytes/sample", "lower")

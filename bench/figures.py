"""A scenario in, its records out: how the gate and asv measure, whatever scenarios there are.

Virtual time, counts, digests and predictions are marked as exact. What a real clock or a GPU says is not: the paired
tier of the gate compares the one, and asv keeps the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from unittest.mock import patch

from bench import prefix_share, training_step
from bench.profiles import chance, report
from bench.profiles.endpoints import PROFILES
from bench.records import Record, record, records_of
from bench.runner import run, stage_for
from bench.scenarios import (
    CALIBRATED,
    CHANCE,
    NEVER_EXACT,
    NIGHTLY_CONTROL,
    PAIRED,
    REGISTRY,
    REJECTIONS,
    STEPS,
    TRL_STEPS,
    VERL_MANAGERS,
    Scenario,
)

#: With torch: of the grid's sizes only those up to this one, since what larger ones add is time ...
MOST_GENERATED = 100
#: ... and the scenario that stands for padding and for memory by batch size.
MEMORY = REGISTRY["torch/self-8/1024"]


def exact_scenarios() -> list[Scenario]:
    """All of the registry that has exact figures.

    Over sockets the grid and the pairs are left out: their replies come so soon that how many overlap is chance. The
    steps of real trainers need the trainers; rejection sampling, predictions and the nightly control have figures of a
    real clock alone.
    """
    return [scenario for scenario in REGISTRY.values() if _is_exact(scenario)]


def _is_exact(scenario: Scenario) -> bool:
    clocked = (TRL_STEPS, VERL_MANAGERS, NIGHTLY_CONTROL, *PAIRED, *REJECTIONS, *CALIBRATED)
    if scenario.backend in NEVER_EXACT or scenario in clocked:
        return False
    if scenario.backend == "torch":
        return scenario.n <= MOST_GENERATED or scenario == MEMORY
    return scenario.backend != "loopback" or "/" not in scenario.id


def measure(scenario: Scenario) -> list[Record]:
    """Every figure of it, from one run."""
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)  # refusals are what some scenarios are made of
    if scenario.backend == "rubric":
        return exactly(prefix_share.records_of(scenario, prefix_share.measure(scenario)))
    if scenario == CHANCE:
        return exactly(chance.records_of(scenario, {case: chance.measure(case) for case in chance.CASES}))
    if scenario.backend == "engine":
        return exactly(report.records_of(scenario, report.measure(PROFILES[scenario.id.removeprefix("profile-")])))
    if scenario.backend == "torch":
        if not (importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")):
            raise ModuleNotFoundError("torch and transformers are not installed: pip install '.[torch]'")
        if scenario == MEMORY:
            return _memory()
    with stage_for(scenario) as stage, counting_blocks() as blocks:
        found = records_of((training_step.run_step if scenario in STEPS else run)(scenario, stage))
    return [*found, record(scenario, "loop blocked", sum(blocks), "s", "lower", exact=scenario.is_virtual)]


def _memory() -> list[Record]:
    from bench import self_mode

    judge = self_mode.generator()
    by_length, _ = self_mode.measure_padding(judge)
    memory = self_mode.measure_memory(judge)
    exact = [self_mode.padding_record(by_length), *memory.predicted_records(), *self_mode.counted_records(judge)]
    return exactly(exact) + memory.measured_records()


def exactly(records: Iterable[Record]) -> list[Record]:
    return [replace(each, exact=True) for each in records]


def is_clocked(scenario: Scenario) -> bool:
    """Whether a busy machine can change what is counted: a server and worker processes have a real clock."""
    return scenario.backend == "loopback" or scenario.mode == "process"


@contextlib.contextmanager
def counting_blocks() -> Iterator[list[float]]:
    """Every `time.sleep` in a thread whose event loop waits for it: in virtual time, nothing else shows it."""
    blocks: list[float] = []
    sleep = time.sleep

    def counted(seconds: float) -> None:
        if asyncio._get_running_loop() is not None:
            blocks.append(seconds)
        sleep(seconds)

    with patch.object(time, "sleep", counted):
        yield blocks

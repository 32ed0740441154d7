"""The machine by itself: which device and which model it is, and how fast, by work that has nothing of ours in it.

Products of matrices on the device, and requests to a simulated server by the standard library: where either moves, it
is the machine, and no other figure of the night is believed. Run before the parts and after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from bench.gate.rounds_child import asking_plainly
from bench.nightly.judges import CpuClock, directory_of, hear_records, identity
from bench.nightly.parts import Hear, Order
from bench.records import environment, record
from bench.runner import loopback_stage
from bench.scenarios import NIGHTLY_CONTROL, REGISTRY
from rewardcore.memory.neighbours import uuid_of

#: Of the matrices: large enough that a GPU is as busy, and as hot, as with a model.
SIDE = {"cpu": 512, "cuda": 8192}
#: Seconds of the same work before the first figure, in which a GPU comes to the clock that it can keep.
WARM_UP = {"cpu": 0.0, "cuda": 5.0}


def measure(order: Order, hear: Hear) -> None:
    if order.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            f"--device cuda, but torch {torch.__version__} sees no CUDA GPU: install a CUDA build of torch and check"
            " the driver with nvidia-smi, or say --device cpu"
        )
    torch.set_num_threads(1)
    device = {"kind": order.device, "name": environment()["gpu" if order.device == "cuda" else "cpu"]}
    found = environment() | {"cuda": torch.version.cuda or "none"}
    if order.device == "cuda":
        found["gpu uuid"] = uuid_of(torch.cuda.get_device_properties(0))
    hear({"machine": {"device": device, "model": identity(directory_of(order)), "environment": found}})
    multiply = matrix_products(order)
    ready = time.perf_counter() + WARM_UP[order.device]
    while multiply() and time.perf_counter() < ready:
        pass
    for number in order.all_rounds:
        seconds = multiply()
        hear_records(hear, [record(NIGHTLY_CONTROL, f"matrix products, round {number}", seconds, "s", "lower")])
    scenario = REGISTRY["paired-control"]
    with loopback_stage(scenario.profile, scenario.seed) as stage:
        one_round = asking_plainly(scenario, stage)
        one_round()
        for number in order.all_rounds:
            seconds = one_round()["makespan"]
            hear_records(hear, [record(scenario, f"makespan, round {number}", seconds, "s", "lower")])


def matrix_products(order: Order) -> Callable[[], float]:
    """Seconds of one round. Random numbers in the judge's type: ones, or another type, draw less power than a model."""
    data_type = torch.float16 if order.model and order.device == "cuda" else torch.float32
    drawn = torch.Generator(order.device).manual_seed(0)
    side = SIDE[order.device]
    matrix = torch.randn(side, side, generator=drawn, device=order.device, dtype=data_type)
    now = CpuClock().now if order.device == "cpu" else time.perf_counter

    def multiply() -> float:
        started = now()
        for _ in range(NIGHTLY_CONTROL.n):
            matrix @ matrix
        if order.device == "cuda":
            torch.cuda.synchronize()
        return now() - started

    return multiply

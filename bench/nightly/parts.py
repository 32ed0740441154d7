"""A part of a night: what it is to measure, and how: by a child that tells what it measures, as it measures it.

A part knows nothing of the others, and its death costs nothing that it has told. Whoever tests a night gives it parts
of their own: a name, scenarios, and a function.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.figures import MEMORY, MOST_GENERATED
from bench.gate.children import Child, at_once, started
from bench.harness import ROOT
from bench.real import CHECK_REQUESTS, Budget, Size
from bench.scenarios import BATCH_SIZES, NIGHTLY_CONTROL, NIGHTLY_ENGINE, REGISTRY, Scenario

CHILD = "bench.nightly.child"
NAMES = ("http", "torch", "vllm")
#: Seconds without a word: longer than a server may take to start, and than an engine takes to compile.
PATIENCE = 1800.0
#: Seconds that a child has to put its server or its engine away.
GRACE = 30.0
#: Beyond what is due: retries are at most a tenth of the traffic.
RETRIES = 1.1
CONTROL_SCENARIOS = (NIGHTLY_CONTROL, REGISTRY["paired-control"])
_PACKAGES = {"vllm": "vLLM"}
#: What a child tells: {"tell": a line}, {"records": […]}, {"failed": a scenario, "why": …}, {"unfit": a scenario that
#: does not fit the device's memory}, {"machine": {…}}; at last {"done": …}, or {"why": …} where all of it failed.
Hear = Callable[[dict[str, Any]], object]


class PartFailed(Exception):
    """Why a part did not come to its end; `said` are the last lines of its stderr."""

    def __init__(self, why: str, said: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.said = list(said)


@dataclass(frozen=True)
class Order:
    """What a child is told to do. `model` is empty for the tiny judge, `scenarios` are ids; the share of the GPU's
    memory that vLLM takes is its own default where it is 0.
    """

    part: str
    device: str
    model: str = ""
    max_tokens: int = 64
    rounds: int = 5
    first_round: int = 1
    logs: str = "logs"
    scenarios: tuple[str, ...] = ()
    gpu_memory_utilization: float = 0.0

    @classmethod
    def read(cls, text: str) -> Order:
        fields = json.loads(text)
        return cls(**{**fields, "scenarios": tuple(fields["scenarios"])})

    @property
    def all_rounds(self) -> range:
        return range(self.first_round, self.first_round + self.rounds)

    @property
    def of_registry(self) -> list[Scenario]:
        return [REGISTRY[id] for id in self.scenarios]


@dataclass(frozen=True)
class Part:
    """`measure(ids, hear)` measures those scenarios, or raises PartFailed; `missing` is why it cannot here."""

    name: str
    scenarios: tuple[Scenario, ...]
    measure: Callable[[Sequence[str], Hear], object]
    missing: str = ""


def parts_of(order: Order, sizes: Sequence[int]) -> list[Part]:
    """The three parts at these sizes, in the order in which they are run. `order` is for all of them."""
    served = [scenario for n in sizes for scenario in Size(n, order.rounds, "vllm").scenarios.values()]
    batched = [REGISTRY[f"torch/self-{size}/{batched_size(sizes)}"] for size in BATCH_SIZES]
    offline = [NIGHTLY_ENGINE, *(REGISTRY[f"vllm-offline/self/{n}"] for n in sizes)]
    return [
        child_part(replace(order, part="http"), served, needs=["vllm"]),
        child_part(replace(order, part="torch"), [*batched, MEMORY], needs=["torch", "transformers"]),
        child_part(replace(order, part="vllm"), offline, needs=["vllm"]),
    ]


def batched_size(sizes: Sequence[int]) -> int:
    """What the self mode judges at every batch size, one by one too: the largest of these that is not too large."""
    return max((n for n in sizes if n <= MOST_GENERATED), default=MOST_GENERATED)


def budget_of(order: Order, sizes: Sequence[int]) -> Budget:
    """The hard cap on what the served judge is sent."""
    due = sum(Size(n, order.rounds, "vllm").requests for n in sizes)
    return Budget(int(due * RETRIES) + CHECK_REQUESTS, order.rounds, tuple(sizes), "vllm")


def control_part(order: Order) -> Part:
    return child_part(replace(order, part="control"), CONTROL_SCENARIOS)


def child_part(order: Order, scenarios: Sequence[Scenario], needs: Sequence[str] = (), module: str = CHILD) -> Part:
    def measure(ids: Sequence[str], hear: Hear) -> None:
        run_child(replace(order, scenarios=tuple(ids)), hear, module)

    absent = [package for package in needs if importlib.util.find_spec(package) is None]
    missing = f"{_PACKAGES.get(absent[0], absent[0])} is not installed" if absent else ""
    return Part(order.part, tuple(scenarios), measure, missing)


def run_child(order: Order, hear: Hear, module: str = CHILD) -> None:
    """In a thread, so that this one hears Ctrl-C and SIGTERM; then the child ends, and what it has started."""
    (failure,) = at_once(lambda: _listen(order, hear, module))
    if failure is not None:
        raise failure


def _listen(order: Order, hear: Hear, module: str) -> PartFailed | None:
    why, python = "", Path(sys.executable)
    with started(python, module, json.dumps(asdict(order)), path=ROOT, patience=PATIENCE, grace=GRACE) as child:
        while (message := child.read()) is not None:
            if "done" in message:
                return None
            if "why" in message and "failed" not in message:  # the whole part
                why = message["why"]
            else:
                hear(message)
        return PartFailed(why or _how(child), child.tail())


def _how(child: Child) -> str:
    death, code = child.death(), child.wait()
    if code >= 0:
        return death
    name = str(-code)
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
    advice = "; if nobody killed it, the machine has run out of memory" if code == -signal.SIGKILL else ""
    return f"killed by {name}: {death}{advice}"

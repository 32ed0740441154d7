"""asv's classes, one for each exact scenario of the registry, with its version; lower is better in every series.

All of them have one `setup_cache`: asv runs it once for a commit, it measures every scenario once, and each series
reads its figure there. What is better when it is higher, asv would read backwards; the gate compares that.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

from bench.figures import MEMORY, exact_scenarios, measure
from bench.scenarios import BATCH_SIZES, Scenario

#: Of a whole commit, in seconds, on a busy machine.
LONGEST = 900
Figures = dict[str, dict[str, float] | str]


def tracked(scenario: Scenario) -> tuple[str, ...]:
    """The metrics of a scenario that have a series.

    Mocked worker processes have none: on a busy machine they ask again what only seems to stall, and asv, unlike the
    gate, does not measure twice.
    """
    if scenario.backend == "rubric" or scenario == MEMORY or (scenario.backend, scenario.mode) == ("respx", "process"):
        return ()
    if scenario.backend == "loopback":
        return ("requests", "connections opened")
    has_clock = scenario.backend in ("respx", "engine") and not scenario.is_warm
    return ("makespan", "requests") if has_clock else ("requests",)


class Series:
    """What every class has in common. asv knows a cache by the place of its function: this is the only one."""

    timeout = LONGEST

    def setup_cache(self) -> Figures:
        return {scenario.id: _figures(scenario) for scenario in exact_scenarios()}

    setup_cache.timeout = LONGEST  # type: ignore[attr-defined]


def _figures(scenario: Scenario) -> dict[str, float] | str:
    """What was measured, or the error: one scenario that a commit cannot run costs it no other."""
    try:
        return {each.metric: each.value for each in measure(scenario) if not isinstance(each.value, str)}
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def figure(figures: Figures, scenario: str, metric: str) -> float:
    found = figures[scenario]
    if isinstance(found, str):
        raise RuntimeError(f"this commit cannot run {scenario}: {found}")
    return found[metric]


def _series(scenario: Scenario, metric: str) -> Callable[[Any, Figures], float]:
    def track(self: Any, figures: Figures) -> float:
        return figure(figures, scenario.id, metric)

    track.unit = {"makespan": "virtual seconds"}.get(metric, metric)  # type: ignore[attr-defined]
    track.pretty_name = f"{scenario.id}: {metric}"  # type: ignore[attr-defined]
    return track


def _class_of(scenario: Scenario) -> type:
    methods = {f"track_{_word(metric)}": _series(scenario, metric) for metric in tracked(scenario)}
    return type(_word(scenario.id), (Series,), {"version": str(scenario.version), "__module__": __name__, **methods})


def _word(text: str) -> str:
    return re.sub(r"\W", "_", text)


class MemoryByBatchSize(Series):
    """The self mode's peak, predicted on any machine from the model's config."""

    version = str(MEMORY.version)
    params = BATCH_SIZES
    param_names = ("batch_size",)
    unit = "bytes"

    def track_predicted_peak(self, figures: Figures, batch_size: int) -> float:
        return figure(figures, MEMORY.id, f"predicted peak, batch {batch_size}")


class CudaMemoryByBatchSize(MemoryByBatchSize):
    """The same, measured: where there is a GPU."""

    track_predicted_peak = None

    def setup(self, figures: Figures, batch_size: int) -> None:
        if not _has_gpu():
            raise NotImplementedError  # asv's word for "not here"

    def track_peak_allocated(self, figures: Figures, batch_size: int) -> float:
        return figure(figures, MEMORY.id, f"CUDA peak allocated, batch {batch_size}")

    def track_peak_reserved(self, figures: Figures, batch_size: int) -> float:
        return figure(figures, MEMORY.id, f"CUDA peak reserved, batch {batch_size}")


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


for _scenario in exact_scenarios():
    if tracked(_scenario):
        globals()[_word(_scenario.id)] = _class_of(_scenario)

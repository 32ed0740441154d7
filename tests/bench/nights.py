"""Nights without a model: figures that are made up, and parts that tell them, fail, or die."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench.nightly import history
from bench.nightly.night import Device, Night
from bench.nightly.parts import CONTROL_SCENARIOS, Hear, Part, PartFailed
from bench.nightly.running import Plan, run_night
from bench.records import Record, record
from bench.scenarios import REGISTRY

DEVICE = Device("cuda", "NVIDIA A10")
ENVIRONMENT = {"torch": "2.13.0"}
SERVED, BATCHED, MEMORY, ENGINE = "vllm/asyncio/16", "torch/self-8/16", "torch/self-8/1024", "nightly-engine"
CONTROL = tuple(scenario.id for scenario in CONTROL_SCENARIOS)
PARTS = {
    "http": ("vllm/sync/16", SERVED),
    "torch": (BATCHED, MEMORY),
    "vllm": (ENGINE, "vllm-offline/self/16"),
}
#: (scenario, metric) → value, unit, direction, and whether it is exact; what is not, and is no memory, has rounds.
FIGURES = {
    ("vllm/sync/16", "makespan"): (16.0, "s", "lower", False),
    (SERVED, "makespan"): (1.0, "s", "lower", False),
    (SERVED, "scores equal to sync's"): (1.0, "of those both gave", "higher", False),
    (BATCHED, "samples a second"): (40.0, "1/s", "higher", False),
    (BATCHED, "verdict digest"): ("aaaa", "", "equal", True),
    (BATCHED, "requests"): (2, "requests", "lower", True),
    (MEMORY, "counted peak, slope"): (1_400_000.0, "bytes/sample", "lower", True),
    (MEMORY, "predicted peak, batch 8"): (12_500_000, "bytes", "lower", True),
    (MEMORY, "CUDA peak allocated, batch 8"): (12_000_000.0, "bytes", "lower", False),
    (ENGINE, "weights"): (700_000, "bytes", "lower", False),
    (ENGINE, "KV blocks"): (16_384, "blocks", "higher", False),
    ("vllm-offline/self/16", "tokens a second"): (900.0, "1/s", "higher", False),
    ("nightly-control", "matrix products"): (0.2, "s", "lower", False),
    ("paired-control", "makespan"): (0.1, "s", "lower", False),
}
ALONE = ("weights", "KV blocks")
#: A little noise, the same every night.
NOISE = (1.0, 1.01, 0.99, 1.02, 0.98)
ROUNDS = len(NOISE)


def made_up(
    changed: Mapping[tuple[str, str], object] | None = None, first: int = 1, draw: random.Random | None = None
) -> list[Record]:
    """Every figure, where not `changed`: a number stands for a factor, a text for itself, None for no figure at all."""
    found = []
    for (scenario, metric), (value, unit, direction, exact) in FIGURES.items():
        change = (changed or {}).get((scenario, metric), 1.0)
        if change is None:
            continue
        value = change if isinstance(change, str) else value if isinstance(value, str) else value * change
        if exact or metric in ALONE:
            found.append(record(REGISTRY[scenario], metric, value, unit, direction, exact=exact))
        else:
            noise = NOISE if draw is None else [draw.lognormvariate(0, 0.03) for _ in NOISE]
            found += [
                record(REGISTRY[scenario], f"{metric}, round {first + number}", value * each, unit, direction)
                for number, each in enumerate(noise)
            ]
    return found


def a_night(number: int, changed: Mapping[tuple[str, str], object] | None = None, **fields: object) -> Night:
    night = Night(f"2026-10-{number:02}T02:00:00Z", f"{number:x}" * 40, DEVICE, "judge", records=made_up(changed))
    return replace(night, **{"environment": ENVIRONMENT, **fields})


def a_part(
    name: str, changed: Sequence[Mapping[tuple[str, str], object] | Exception] = ({},), **fields: object
) -> Part:
    """Tells its figures, each time as the next of `changed` says, the last one ever after; or raises it."""
    times = iter(range(100))

    def measure(ids: Sequence[str], hear: Hear) -> None:
        what = changed[min(next(times), len(changed) - 1)]
        told = [each for each in made_up({} if isinstance(what, Exception) else what) if each.scenario in ids]
        if isinstance(what, Exception):
            told = told[:1]
        hear({"tell": f"{len(told)} figures"})
        for each in told:
            hear({"records": [asdict(each)]})
        if isinstance(what, Exception):
            raise what

    return Part(name, tuple(REGISTRY[id] for id in PARTS[name]), measure, **fields)


def control(
    changed: Mapping[tuple[str, str], object] | None = None,
    first: int = 1,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Part:
    def measure(ids: Sequence[str], hear: Hear) -> None:
        hear({"machine": {"device": asdict(DEVICE), "model": "judge", "environment": dict(environment)}})
        hear({"records": [asdict(each) for each in made_up(changed, first) if each.scenario in ids]})

    return Part("control", CONTROL_SCENARIOS, measure)


def a_plan(directory: Path, number: int = 9, *parts: Part, **fields: object) -> Plan:
    """Of a night whose parts are as ever, where no other is given."""
    given = {part.name: part for part in parts}
    night = Night(f"2026-10-{number:02}T02:00:00Z", f"{number:x}" * 40, Device("cuda"))
    all_parts = [given.get(name, a_part(name)) for name in PARTS]
    plan = Plan(night, all_parts, [control(), control(first=1 + ROUNDS)], directory, directory / "history")
    return replace(plan, **fields)


def keep(directory: Path, *nights: Night) -> None:
    for night in nights:
        history.keep(night, directory / "history")


def run(plan: Plan, **options: object) -> tuple[Night, Night | None]:
    return run_night(plan, lambda line: None, **options)


def died(why: str = "its process ended with code -9: Killed", said: Sequence[str] = ("Killed",)) -> PartFailed:
    return PartFailed(why, said)

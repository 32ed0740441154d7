"""The history tier: steps in the series that asv has kept (`tox -e asv -- run`). Advice: it lags by several commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import ROOT

RESULTS = ROOT / ".asv" / "results"
#: A step that is smaller is not worth a word.
WORTH = 0.02


class Step(NamedTuple):
    """Where a series changed: from this commit on it is another value."""

    series: str
    commit: str
    before: float
    after: float


def advise(results: Path = RESULTS) -> list[str]:
    try:
        from asv.step_detect import detect_steps
    except ImportError:
        return ["asv is not installed here: pip install '.[bench]'"]
    series = read(results)
    if not series:
        return ["there is none yet: tox -e asv -- run HEAD~3..HEAD"]
    found = [line for name, points in series.items() for line in steps_up(name, points, detect_steps)]
    return found or [f"no step up in {len(series)} series"]


def read(results: Path) -> dict[str, list[tuple[str, float]]]:
    """series → (commit, value), oldest first."""
    files = [json.loads(file.read_text()) for file in results.glob("*/*.json") if file.name != "machine.json"]
    series: dict[str, list[tuple[str, float]]] = {}
    for document in sorted(files, key=lambda each: each["date"]):
        columns = document["result_columns"]
        for name, row in document["results"].items():
            fields = dict(zip(columns, row, strict=False))
            names = [name]
            for values in fields.get("params") or []:
                names = [f"{each}({value})" for each in names for value in values]
            for each, value in zip(names, fields.get("result") or [], strict=False):
                if isinstance(value, int | float):
                    series.setdefault(each, []).append((document["commit_hash"], float(value)))
    return series


def steps(name: str, points: Sequence[tuple[str, float]], detect_steps: Callable[..., Any]) -> Iterator[Step]:
    for (_, _, before, *_), (begin, _, after, *_) in pairwise(detect_steps([value for _, value in points])):
        if abs(after - before) > abs(before) * WORTH:
            yield Step(name, points[begin][0], before, after)


def steps_up(name: str, points: Sequence[tuple[str, float]], detect_steps: Callable[..., Any]) -> Iterator[str]:
    for step in steps(name, points, detect_steps):
        if step.after > step.before:
            yield f"{name} stepped up from {step.before:g} to {step.after:g} at {step.commit[:10]}"

"""The history tier: steps in the series that asv has kept (`tox -e asv -- run`). Advice: it lags by several commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.harness import ROOT

RESULTS = ROOT / ".asv" / "results"
#: A step that is smaller is not worth a word.
WORTH = 0.02


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


def steps_up(name: str, points: Sequence[tuple[str, float]], detect_steps: Callable[..., Any]) -> Iterator[str]:
    steps = detect_steps([value for _, value in points])
    for (_, _, before, *_), (begin, _, after, *_) in pairwise(steps):
        if after > before * (1 + WORTH):
            yield f"{name} stepped up from {before:g} to {after:g} at {points[begin][0][:10]}"

"""Records: what every run leaves behind, one JSON line per metric, whoever ran it.

A record says on what (commit, environment), what (scenario, version, mode, n, backend) and the figure itself with its
unit and the direction in which it is better. Reports and gates read records and nothing else.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from bench.runner import Run
from bench.scenarios import Scenario

Direction = Literal["higher", "lower", "equal"]
ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / ".bench"


@dataclass(frozen=True)
class Record:
    scenario: str
    version: int
    mode: str
    n: int
    backend: str
    metric: str
    value: float | str
    unit: str
    direction: Direction
    samples: int = 1
    commit: str = field(default_factory=lambda: commit())
    environment: dict[str, str] = field(default_factory=lambda: environment())


def records_of(run: Run, baseline: Run | None = None) -> list[Record]:
    """Every metric of a run; with its sync baseline, also the speed-up."""
    figures: list[tuple[str, Any, str, Direction]] = [
        ("requests", run.requests, "requests", "lower"),
        ("retries", run.retried, "requests", "lower"),
        ("cache hits", run.cached + run.coalesced, "samples", "higher"),
        ("peak in flight", run.peak_in_flight, "requests", "equal"),
        ("score digest", run.digest, "", "equal"),
        ("makespan", run.seconds, "s", "lower"),
        ("efficiency", run.efficiency, "of the ideal", "higher"),
        ("caller blocked", run.waited if run.seconds is not None else None, "s", "lower"),
    ]
    if baseline is not None and baseline.seconds and run.seconds:
        figures.append(
            (
                f"speed-up over {'batch size 1' if run.scenario.mode == 'self' else 'sync'}",
                baseline.seconds / run.seconds,
                "×",
                "higher",
            )
        )
    return [
        record(run.scenario, metric, value, unit, direction)
        for metric, value, unit, direction in figures
        if value is not None
    ]


def record(
    scenario: Scenario, metric: str, value: float | str, unit: str, direction: Direction, samples: int = 1
) -> Record:
    s = scenario
    return Record(s.id, s.version, s.mode, s.n, s.backend, metric, value, unit, direction, samples)


def write(records: Iterable[Record], path: Path) -> None:
    """Append; a reader sees whole lines only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(asdict(each), sort_keys=True, allow_nan=False) + "\n" for each in records)
    with path.open("a", encoding="utf-8") as file:
        file.write(lines)


def read(path: Path) -> list[Record]:
    return [Record(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


@functools.cache
def commit() -> str:
    """The commit, with + where the tree has changes; "unknown" outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@functools.cache
def environment() -> dict[str, str]:
    """What a figure depends on besides the code."""
    found = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
        "cpu": _cpu(),
        "gpu": _gpu(),
    }
    for package in ("aiohttp", "httpx", "uvloop", "torch", "vllm"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _gpu() -> str:
    torch = sys.modules.get("torch")  # asked only where a benchmark has loaded it anyway
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "none"

"""Records: what every run leaves behind, one JSON line per metric, whoever ran it.

A record says when and on what (time, run, commit, environment, and of a real endpoint its URL and model), what
(scenario, version, mode, n, backend) and the figure itself with its unit and the direction in which it is better.
`exact` figures are the same on every machine at every run. Reports and gates read records and nothing else.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from bench.runner import Run
from bench.scenarios import NEVER_EXACT, Scenario

Direction = Literal["higher", "lower", "equal"]
ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / ".bench"
FILE = DIRECTORY / "records.jsonl"
#: One for all that this process measures.
RUN = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


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
    exact: bool = False
    base_url: str = ""  # of a real endpoint
    model: str = ""
    time: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    run: str = RUN
    commit: str = field(default_factory=lambda: commit())
    environment: dict[str, str] = field(default_factory=lambda: environment())


def records_of(run: Run) -> list[Record]:
    """Every metric of a run by itself."""
    scenario, is_timed = run.scenario, run.seconds is not None
    seconds = "virtual s" if scenario.is_virtual else "s"
    figures: list[tuple[str, Any, str, Direction]] = [
        ("requests", run.requests, "requests", "lower"),
        ("retries", run.retried, "requests", "lower"),
        ("refused", run.refused, "requests", "lower"),
        ("cache hits", run.cached + run.coalesced, "samples", "higher"),
        ("wrong from the cache", run.wrong_from_cache, "samples", "lower"),
        ("peak in flight", run.peak_in_flight, "requests", "equal"),
        ("connections opened", run.connections, "connections", "lower"),
        ("pause before a retry", run.pause, seconds, "equal"),
        ("asked before Retry-After", run.too_soon, "requests", "lower"),
        ("verdict digest", run.digest, "", "equal"),
        ("completion tokens", run.completion_tokens or None, "tokens", "equal"),
        ("prefix share", run.prefix_share if scenario.responses > 1 else None, "of the bytes sent", "higher"),
        ("work of submit", run.submit_bytecodes, "bytecodes", "lower"),
        ("left behind by a stream", run.left_behind, "bytes/sample", "lower"),
        ("makespan", run.seconds, seconds, "lower"),
        ("efficiency", run.efficiency, "of the ideal", "higher"),
        ("caller blocked", run.waited if is_timed else None, seconds, "lower"),
    ]
    return [
        record(scenario, metric, value, unit, direction, exact=is_exact(scenario, metric))
        for metric, value, unit, direction in figures
        if value is not None
    ]


def speed_up_of(run: Run, baseline: Run) -> Record | None:
    """None where one of them has no time."""
    if not baseline.seconds or not run.seconds:
        return None
    metric = f"speed-up over {'batch size 1' if run.scenario.mode == 'self' else 'sync'}"
    exact = is_exact(run.scenario, metric)
    return record(run.scenario, metric, baseline.seconds / run.seconds, "×", "higher", exact=exact)


#: Metrics that are exact over sockets too: of every scenario, and of those that begin cold and leave all the time.
_COUNTED = {"requests", "retries", "refused", "cache hits", "verdict digest", "completion tokens"}
_COUNTED_ON_THE_WIRE = {"peak in flight", "connections opened"}


def is_exact(scenario: Scenario, metric: str) -> bool:
    """In virtual time everything is; where time is real, what does not depend on it."""
    if scenario.backend in NEVER_EXACT:
        return False
    return scenario.is_virtual or metric in _COUNTED or (scenario.is_cold and metric in _COUNTED_ON_THE_WIRE)


def record(
    scenario: Scenario,
    metric: str,
    value: float | str,
    unit: str,
    direction: Direction,
    samples: int = 1,
    *,
    exact: bool = False,
) -> Record:
    s = scenario
    return Record(s.id, s.version, s.mode, s.n, s.backend, metric, value, unit, direction, samples, exact)


def write(records: Iterable[Record], path: Path) -> None:
    """Append, in one piece and at once: whatever becomes of this process, a reader sees whole lines."""
    lines = b"".join(json.dumps(asdict(each), sort_keys=True, allow_nan=False).encode() + b"\n" for each in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            lines = b"\n" + lines  # a writer was killed in its last line: it stays the only one that is lost
        file.write(lines)


def read(path: Path) -> list[Record]:
    """Lines from before there was a time or a run have none; one that was cut off is no record."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        found.append(Record(**{"time": "", "run": "", **fields}))
    return found


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
        "driver": _driver(),
    }
    for package in ("aiohttp", "httpx", "uvloop", "torch", "transformers", "vllm"):
        found[package] = _version(package) or _version(f"{package}-cpu") or "none"  # vLLM for the CPU has that name
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _driver() -> str:
    """NVIDIA's, where there is one."""
    try:
        found = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return "none"
    return found[1] if found else "unknown"


def _gpu() -> str:
    torch = sys.modules.get("torch")  # asked only where a benchmark has loaded it anyway
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "none"

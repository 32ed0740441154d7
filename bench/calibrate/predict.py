"""Every size in every mode against a fitted model, in virtual time: the real engine and drivers, and no socket.

Worker processes share no virtual clock: the process mode is predicted as what it is over the wire, four requests at
once by the same engine. What is drawn at random moves the makespan of a few samples a lot: small sizes are
judged under several seeds, and the middle one counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bench.calibrate.fit import Fit
from bench.calibrate.probe import Tell
from bench.runner import run, virtual_stage
from bench.scenarios import MODES, SIZES, Scenario
from rewardcore.testing.latency import Profile

AtOnce = int | Literal["auto"]
#: How many at once people choose; of these, the ones that were probed are predicted.
CHOICES = (8, 16, 32, 60, 128, 256, 512)
#: How many seeds a size is judged under; a large one evens itself out, but for the pauses after refusals.
_SEEDS, _SEEDS_REFUSED, _SEEDS_ELSE = {16: 9, 32: 9, 100: 5}, 3, 1
#: As quick as the quickest, for whoever has to choose.
AS_QUICK = 1.05


@dataclass(frozen=True)
class Row:
    """One setting. A makespan is None where it would be longer than the harness waits (10,000 s of virtual time)."""

    mode: str
    at_once: AtOnce
    makespans: dict[int, float | None]
    peak_in_flight: int


def settings(fit: Fit) -> list[tuple[str, AtOnce]]:
    """What is worth predicting: what people choose, as far as it was probed, and just what the endpoint bears."""
    workers = int(MODES["process"][1]["workers"])
    fixed = {choice for choice in CHOICES if choice <= fit.highest} or {fit.highest}
    if fit.bears is not None:
        fixed.add(max(1, min(fit.highest, math.ceil(fit.bears))))
    at_once: list[AtOnce] = [*sorted(fixed), "auto"]
    return [("sync", 1), ("process", workers), *(("asyncio", choice) for choice in at_once)]


def predict(fit: Fit, tell: Tell) -> list[Row]:
    chosen, profile = settings(fit), fit.profile
    rows = []
    for index, (mode, at_once) in enumerate(chosen):
        name = mode if mode != "asyncio" else f"asyncio, {at_once} at once"
        tell(name, index, len(chosen))
        rows.append(predict_row(profile, mode, at_once))
    tell("done", len(chosen), len(chosen))
    return rows


def predict_row(profile: Profile, mode: str, at_once: AtOnce, sizes: tuple[int, ...] = SIZES) -> Row:
    found: dict[int, float | None] = {}
    peak = 0
    driven = "sync" if mode == "sync" else "asyncio-httpx"
    for n in sizes:
        makespans = []
        for seed in range(_seeds(profile, n)):
            scenario = Scenario("calibrate", n, driven, "respx", profile=profile, max_concurrent=at_once, seed=seed)
            with virtual_stage(profile, seed) as stage:
                result = run(scenario, stage)
            makespans.append(result.seconds if result.statuses == {"ok": n} else None)
            peak = max(peak, result.peak_in_flight or 0)
        found[n] = None if None in makespans else median(seconds for seconds in makespans if seconds is not None)
    return Row(mode, at_once, found, peak)


def _seeds(profile: Profile, n: int) -> int:
    refuses = profile.concurrency_limit is not None or profile.rate_limit is not None or profile.error_fraction
    if refuses:
        return _SEEDS.get(n, _SEEDS_REFUSED)
    return _SEEDS.get(n, _SEEDS_ELSE) if profile.spread or profile.straggler_fraction else 1


def recommended(rows: list[Row], highest: int) -> Row:
    """Of the settings that stay within what was probed and are as quick as the quickest, the gentlest one."""
    known = [row for row in rows if row.makespans[max(SIZES)] is not None and row.peak_in_flight <= highest]
    largest = {id(row): row.makespans[max(SIZES)] or 0.0 for row in known}
    quickest = min(largest.values())
    return min((row for row in known if largest[id(row)] <= AS_QUICK * quickest), key=lambda row: row.peak_in_flight)

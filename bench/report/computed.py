"""What is exact and quick, and stands in no file: scenarios of the registry in virtual time, and the pace as it goes.

`fill` runs those scenarios that a table needs and nobody recorded, with the checks of every session; `play_endpoints`
plays profiles of bench/profiles under every fixed setting and under "auto". No workload is this package's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench import training_step
from bench.profiles import report as profiles
from bench.profiles.drive import SIZE, Moment, Played, new_pace, play
from bench.profiles.endpoints import PROFILES as ENDPOINTS
from bench.profiles.endpoints import Profile
from bench.records import Record, commit
from bench.report.newest import SPEED_UP, Newest
from bench.report.table import short
from bench.runner import run, stage_for
from bench.scenarios import CLAIMED_WAITS, CLAIMS, GRID, PROFILES, REGISTRY, STEPS
from bench.summary import Results

#: A cap, a rate, and one that is slower with every request: three shapes of a curve, and three knees.
SWEPT = ("cap-429", "requests-bucket", "saturating")
#: A limit that is found and kept, one that moves, and a rate.
WATCHED = ("cap-429", "moving-cap", "requests-bucket")
#: The knee is the smallest limit that reaches this share of the best: more at once is more load for little.
KNEE = profiles.OF_THE_BEST

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Sweep:
    """Samples a second of one endpoint under each fixed setting, over all batches; and of "auto"."""

    profile: Profile
    fixed: dict[int, Played]
    auto: Played

    @property
    def knee(self) -> int | None:
        return knee_of({setting: pace_of(played) for setting, played in self.fixed.items()})


@dataclass(frozen=True)
class Endpoints:
    sweeps: tuple[Sweep, ...] = ()
    watched: tuple[tuple[Profile, Played], ...] = ()

    @property
    def provenance(self) -> str:
        return f"computed for this page, commit {short(commit())}"


def knee_of(paces: Mapping[int, float]) -> int | None:
    """None where the highest limit that was tried is the first to be the best: the curve may rise beyond it."""
    best = max(paces.values())
    found = min(setting for setting, pace in paces.items() if pace >= KNEE * best)
    return found if found < max(paces) else None


def pace_of(played: Played) -> float:
    return SIZE * len(played.makespans) / played.seconds


def play_endpoints(tell: Tell) -> Endpoints:
    _be_quiet()
    tell(f"playing {len({*SWEPT, *WATCHED})} endpoints in virtual time")
    auto = {name: play(ENDPOINTS[name].open(), new_pace("auto")) for name in {*SWEPT, *WATCHED}}
    sweeps = [
        Sweep(ENDPOINTS[name], {limit: play(ENDPOINTS[name].open(), new_pace(limit)) for limit in profiles.FIXED}, it)
        for name, it in ((name, auto[name]) for name in SWEPT)
    ]
    return Endpoints(tuple(sweeps), tuple((ENDPOINTS[name], auto[name]) for name in WATCHED))


def thinned(played: Played, most: int = 240) -> list[Moment]:
    """The last moment of each of so many equal spans: what a screen can show."""
    width = played.seconds / most
    return list({min(int(moment.time / width), most - 1): moment for moment in played.moments}.values())


def fill(newest: Newest, tell: Tell) -> None:
    """Whatever is missing is run here and now, and is of this commit."""
    newest.add(_runs(newest, tell))
    if any(newest.get(scenario.id, "GPU wait") is None for scenario in STEPS):
        tell("computing what a trainer waits in a step")
        newest.add(training_step.records_of(training_step.measure()))
    for scenario in PROFILES:
        if newest.get(scenario.id, "of the best fixed setting") is None:
            tell(f"computing {scenario.id}")
            _be_quiet()
            figures = profiles.measure(ENDPOINTS[scenario.id.removeprefix("profile-")])
            newest.add(profiles.records_of(scenario, figures))


def _runs(newest: Newest, tell: Tell) -> list[Record]:
    missing = list(dict.fromkeys(id for id, metric in _wanted() if newest.get(id, metric) is None))
    # A speed-up is over a run of the same session.
    grid = [id for id in missing if "/" in id]
    wanted = list(dict.fromkeys([*missing, *(f"respx/sync/{REGISTRY[id].n}" for id in grid)]))
    results = Results()
    for place, id in enumerate(wanted, 1):
        tell(f"computing {id}, {place} of {len(wanted)}")
        _be_quiet()
        with stage_for(REGISTRY[id]) as stage:
            results.add(run(REGISTRY[id], stage))
    return results.recorded


def _wanted() -> Iterator[tuple[str, str]]:
    """Scenario and metric: those of virtual time that a table asks for."""
    for each in GRID:
        if each.is_virtual and each.is_timed:
            yield each.id, "makespan" if each.mode == "sync" else SPEED_UP
    for claim in CLAIMS:
        yield from ((id, claim.metric) for id in (claim.before, claim.after) if REGISTRY[id].is_virtual)
    yield from ((id, "caller blocked") for id in CLAIMED_WAITS)


def _be_quiet() -> None:
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)  # refusals are what some endpoints are made of

"""What is measured of a profile, and the gates: "auto" beside the best fixed setting, fixed limits beside the endpoint.

Everything is exact, so the gates have no tolerance. A miss is a sentence that says what was asked and what was found.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.profiles.drive import Played, Setting, new_pace, own_pace, play
from bench.profiles.endpoints import Profile
from bench.records import Direction, Record, record
from bench.scenarios import Scenario
from rewardcore.http.pace import Pace

#: The settings that a user may have chosen by hand.
FIXED = (1, 2, 4, 8, 16, 32, 64, 80, 100, 128, 256, 512, 1000)
#: Limits that are asked to keep to the endpoint's own pace.
LIMITS = (60, 200)
#: What "auto" must reach of the best fixed setting, over all batches and in the first, and a limit of the own pace.
OF_THE_BEST, OF_ITS_FIRST, OF_OWN_PACE = 0.90, 0.80, 0.85
NewPace = Callable[[Setting], Pace]


@dataclass(frozen=True)
class Figures:
    """`own` is the endpoint's own pace for a client with so many places; `one` is one at once, as in sync."""

    profile: Profile
    auto: Played
    setting: int
    best: Played
    fixed: dict[int, Played]
    own: dict[int, float]
    one: Played

    @property
    def of_the_best(self) -> float:
        return self.best.seconds / self.auto.seconds

    @property
    def of_its_first(self) -> float:
        return self.best.makespans[0] / self.auto.makespans[0]

    def of_own_pace(self, limit: int) -> float:
        return self.own[limit] / self.fixed[limit].seconds

    @property
    def lost(self) -> int:
        return self.auto.lost + self.best.lost + sum(played.lost for played in self.fixed.values())

    def misses(self) -> Iterator[str]:
        """The gates that are not met."""
        name, auto, may_refuse = self.profile.name, self.auto, self.profile.may_refuse
        if self.of_the_best < OF_THE_BEST:
            yield f"{name}: auto reaches {self.of_the_best:.1%} of {self.setting} at once, not {OF_THE_BEST:.0%}"
        if self.of_its_first < OF_ITS_FIRST:
            yield f"{name}: auto's first batch reaches {self.of_its_first:.1%}, not {OF_ITS_FIRST:.0%}"
        if auto.refused_share > may_refuse:
            yield f"{name}: {auto.refused_share:.2%} of auto's requests are refused, more than {may_refuse:.0%}"
        for limit in LIMITS:
            if self.of_own_pace(limit) < OF_OWN_PACE:
                yield f"{name}: {limit} at once reaches {self.of_own_pace(limit):.1%} of the endpoint's own pace"
        for setting, played in {"auto": auto, **{f"{limit} at once": self.fixed[limit] for limit in LIMITS}}.items():
            if played.seconds > self.one.seconds:
                yield f"{name}: {setting} takes {played.seconds:.1f} s, one at once only {self.one.seconds:.1f} s"
        if self.lost:
            yield f"{name}: {self.lost} samples have no score"


def measure(
    profile: Profile, auto: Played | None = None, is_swept: bool = False, new_pace: NewPace = new_pace
) -> Figures:
    """Plays what has to be compared; with `is_swept` every fixed setting, else the one that is known to be best."""
    known = functools.cache(lambda setting: play(profile.open(), new_pace(setting)))
    setting = sweep(profile, new_pace) if is_swept else profile.best
    return Figures(
        profile,
        known("auto") if auto is None else auto,
        setting,
        known(setting),
        {limit: known(limit) for limit in LIMITS},
        {limit: sum(own_pace(profile.open(), limit)) for limit in LIMITS},
        known(1),
    )


def sweep(profile: Profile, new_pace: NewPace = new_pace) -> int:
    """The quickest of the fixed settings; of equals, the one that is known, else the smallest. Others end early."""
    best, seconds = profile.best, play(profile.open(), new_pace(profile.best)).seconds
    for setting in FIXED:
        played = play(profile.open(), new_pace(setting), until=seconds)
        if not played.lost and played.seconds < seconds:
            best, seconds = setting, played.seconds
    return best


TITLE = (
    "endpoints of every temper: 5 × 1024 with auto, and limits as shares of the endpoint's own pace, virtual seconds"
)
LEGEND = (
    "best fixed: the quickest number at once that a sweep finds; auto: its time; of best, first: the best's over its,"
    " in all and in the first batch; refused, requests, lost: of auto; 60, 200 at once: of the endpoint's own pace"
)
HEADINGS = (
    f"{'':16} {'best fixed':>20} {'auto':>10} {'of best':>8} {'first':>7} {'refused':>8} {'requests':>9}"
    f" {'60 at once':>11} {'200 at once':>12} {'lost':>5}"
)


def line(figures: Figures) -> str:
    """One row under HEADINGS."""
    auto, best = figures.auto, f"{figures.setting} at once {figures.best.seconds:7.1f} s"
    return (
        f"{figures.profile.name:16} {best:>20} {auto.seconds:8.1f} s {figures.of_the_best:8.1%}"
        f" {figures.of_its_first:7.1%} {auto.refused_share:8.2%} {auto.requests:9}"
        f" {figures.of_own_pace(60):11.1%} {figures.of_own_pace(200):12.1%} {figures.lost:5}"
    )


def records_of(scenario: Scenario, figures: Figures) -> list[Record]:
    auto = figures.auto
    metrics: list[tuple[str, float, str, Direction]] = [
        ("makespan", auto.seconds, "virtual s", "lower"),
        ("first batch", auto.makespans[0], "virtual s", "lower"),
        ("requests", auto.requests, "requests", "lower"),
        ("refused", auto.refused_share, "of the requests", "lower"),
        ("lost samples", figures.lost, "samples", "lower"),
        ("of the best fixed setting", figures.of_the_best, "", "higher"),
        ("of its first batch", figures.of_its_first, "", "higher"),
        *((f"{limit} at once", figures.of_own_pace(limit), "of the own pace", "higher") for limit in LIMITS),
    ]
    return [record(scenario, *metric, exact=True) for metric in metrics]

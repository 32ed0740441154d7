"""Failures by chance, in batches as training steps have them: our engine beside a plain loop with as many at once.

A plain loop asks again after 0.1, 0.2 and then always 0.4 s, and gives its place to others meanwhile. What is measured
is the time of ten batches over five seeds; for "auto" of all but the first, beside a loop with a whole batch at once.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.profiles.drive import Player, Setting, new_pace
from bench.profiles.endpoints import ByChance
from bench.records import Record, record
from bench.scenarios import Scenario

SHARES, SIZES = (0.02, 0.1, 0.3), (32, 64, 128, 1024)
BATCHES, SEEDS, SECONDS = 10, range(5), 0.5
DELAYS = (0.1, 0.2, 0.4)
#: With so many retries nothing is lost to chance.
MAX_RETRIES = 15
#: What ours may take, in times of the plain loop.
GATE = 1.2


class Case(NamedTuple):
    share: float
    size: int
    setting: Setting
    status: int

    @property
    def name(self) -> str:
        at_once = self.setting if self.setting == "auto" else f"{self.setting} at once"
        return f"{self.status} for {self.share:.0%}, batches of {self.size}, {at_once}"


class Chanced(NamedTuple):
    times_the_loop: float
    lost: int


def _limits(size: int) -> tuple[Setting, ...]:
    return 60, size, "auto"


CASES = [
    Case(share, size, setting, status)
    for share, status, size in itertools.product(SHARES, (500, 503), SIZES)
    for setting in _limits(size)
]


def measure(case: Case) -> Chanced:
    first = case.setting == "auto"
    ours, lost = 0.0, 0
    for seed in SEEDS:
        player = Player(_endpoint(case, seed), new_pace(case.setting, seed), max_retries=MAX_RETRIES)
        for batch in range(BATCHES):
            player.judge(batch, size=case.size)
        ours += sum(player.makespans[first:])
        lost += BATCHES * case.size - player.statuses["ok"]
    return Chanced(ours / sum(_loop(case, seed) for seed in SEEDS), lost)


def misses(case: Case, found: Chanced) -> Iterator[str]:
    if found.times_the_loop > GATE:
        yield f"{case.name}: {found.times_the_loop:.2f} times a plain loop, more than {GATE}"
    if found.lost:
        yield f"{case.name}: {found.lost} samples have no score"


TITLE = "failures by chance: ten batches over five seeds, in times of a plain loop with as many at once"
HEADINGS = f"{'':18} " + " ".join(
    f"{heading:>9}" for heading in (f"{size}, {limit}" for size in SIZES for limit in _limits(size))
)


def lines(found: Mapping[Case, Chanced]) -> list[str]:
    """A table: a row for each share and status, a column for each size of a batch and each number at once."""
    rows: dict[tuple[float, int], list[str]] = {}
    for case, chanced in found.items():
        lost = f" ({chanced.lost} lost)" if chanced.lost else ""
        rows.setdefault((case.share, case.status), []).append(f"{chanced.times_the_loop:.2f}{lost}".rjust(9))
    return [HEADINGS, *(f"{share:6.0%} answer {status} {' '.join(cells)}" for (share, status), cells in rows.items())]


def records_of(scenario: Scenario, found: Mapping[Case, Chanced]) -> list[Record]:
    """The worst of each share, and how many were lost in all."""
    worst = {share: 0.0 for share in SHARES}
    for case, chanced in found.items():
        worst[case.share] = max(worst[case.share], chanced.times_the_loop)
    records = [record(scenario, f"worst at {share:.0%}", worst[share], "of a plain loop", "lower") for share in SHARES]
    lost = sum(chanced.lost for chanced in found.values())
    return [*records, record(scenario, "lost samples", lost, "samples", "lower")]


def _endpoint(case: Case, seed: int) -> ByChance:
    return ByChance(share=case.share, refusal=case.status, seconds=SECONDS, seed=seed)


@functools.cache
def _loop(case: Case, seed: int) -> float:
    endpoint, is_auto = _endpoint(case, seed), case.setting == "auto"
    at_once = case.size if case.setting == "auto" else case.setting
    return sum([_plain(endpoint, case.size, at_once) for _ in range(BATCHES)][is_auto:])


def _plain(endpoint: ByChance, size: int, at_once: int) -> float:
    """The makespan of one batch."""
    now, places = 0.0, at_once
    due = [(0.0, number, 0) for number in range(size)]
    landings: list[float] = []
    while due or landings:
        while due and due[0][0] <= now and places:
            _, number, failed = heapq.heappop(due)
            if endpoint.decide(number, now, 0).status == 200:
                heapq.heappush(landings, now + SECONDS)
                places -= 1
            else:
                delay = DELAYS[min(failed, len(DELAYS) - 1)]
                heapq.heappush(due, (now + delay, number, failed + 1))
        upcoming = [landings[0]] if landings else []
        if due and places:
            upcoming.append(due[0][0])
        now = max(now, min(upcoming))
        while landings and landings[0] <= now:
            heapq.heappop(landings)
            places += 1
    return now

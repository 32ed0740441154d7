"""What an endpoint is like, from what was asked of it: attempts in, a latency model out. No IO, no clock.

A reply takes `alone` seconds × (1 + growth × others in flight), log-normal around it, with stragglers where there are;
`alone` is a base and so much for each token, where lengths differed. Refusals are a cap or a rate, whichever would
have refused what was refused. What that cannot express is not smoothed away: `Level.off` says by how much each level
was missed, and `doubts` what could not be told.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import NamedTuple

from bench.calibrate.attempts import LEAST, Attempt, in_flight
from bench.calibrate.limits import Limit, limit_of
from rewardcore.testing import latency
from rewardcore.testing.latency import Profile

RESAMPLES = 200
#: Replies whose lengths differ by less than this factor do not tell what a token takes.
_DIFFERENT = 1.5
#: So large a share of refusals and acceptances that the limit found would have decided otherwise is worth a word.
_WRONG = 0.1


class CannotFit(ValueError):
    """Too little was seen; the sentence says what was."""


class Estimate(NamedTuple):
    """A figure, and between what nine of ten resamples of the attempts put it."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        return Estimate(*(factor * each for each in self))


class Level(NamedTuple):
    """What a stage measured at its load, in the mean, how sure that is, and what the model says of it."""

    at_once: int
    in_flight: float
    replies: int
    measured: float
    error: float  # the standard error of `measured`
    modelled: float

    @property
    def off(self) -> float:
        return self.modelled / self.measured - 1.0


class Tokens(NamedTuple):
    """What a token takes, alone, and how many a reply of the workload has."""

    seconds: Estimate
    typical: float


@dataclass(frozen=True)
class Fit:
    profile: Profile
    alone: Estimate
    growth: Estimate
    spread: Estimate
    tokens: Tokens | None
    limit: Limit | None
    levels: tuple[Level, ...]
    counts: Counter[str]
    doubts: tuple[str, ...]

    @property
    def highest(self) -> int:
        """How many at once were asked at most; about more nothing is known."""
        return max(level.at_once for level in self.levels)

    @property
    def doubled(self) -> float:
        """How many at once make a reply take twice as long as alone; infinity for never."""
        return 1.0 + 1.0 / self.growth.value if self.growth.value else math.inf

    @property
    def bears(self) -> float | None:
        """How many at once it takes before it refuses: of a rate, what is in flight when it is just kept to."""
        if self.limit is None or self.limit.kind == "at once":
            return None if self.limit is None else self.limit.value
        left = 1.0 - self.limit.value * mean_of(self.profile) * self.profile.load_growth
        alone = mean_of(self.profile) * (1.0 - self.profile.load_growth)
        return self.limit.value * alone / left if left > 0.0 else None  # it is slowed down to less than its rate

    def seconds(self, in_flight: float) -> float:
        """The mean of a reply at this load: makespans follow the mean."""
        return mean_of(self.profile) * (1.0 + self.profile.load_growth * (in_flight - 1.0))


def fit(attempts: Sequence[Attempt]) -> Fit:
    """Raises CannotFit where fewer than eight replies came from a load that was steady."""
    loads = in_flight(attempts)
    stages: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.outcome == "replied" and attempt.is_steady and not attempt.is_short:
            stages[attempt.stage].append(attempt)
    replies = [attempt for stage in stages.values() for attempt in stage]
    counts = Counter[str](attempt.outcome for attempt in attempts)
    if len(replies) < LEAST:
        raise CannotFit(
            f"only {len(replies)} of {len(attempts)} requests were replied to at a steady load "
            f"({counts['refused']} refused, {counts['failed']} failed), too few for a model"
        )
    points = [(fmean(loads[a] for a in stage), [a.seconds for a in stage]) for stage in stages.values()]
    line = _line(points)
    profile = _profile(points, line)
    draw = random.Random(0)  # the same attempts give the same intervals
    resampled = [_resampled(points, draw) for _ in range(RESAMPLES)]
    lines = [_line(each) for each in resampled]
    profiles = [_profile(each, line) for each, line in zip(resampled, lines, strict=True)]
    limit = limit_of(attempts)
    tokens = _tokens(attempts, loads, profile.load_growth, draw)
    found = Fit(
        _limited(profile, limit, attempts),
        _estimate(profile.latency, (each.latency for each in profiles)),
        _estimate(profile.load_growth, (each.load_growth for each in profiles)),
        _estimate(profile.spread, (each.spread for each in profiles)),
        tokens,
        limit,
        (),
        counts,
        tuple(_doubts(attempts, replies, tokens, limit)),
    )
    levels = (
        Level(stage[0].at_once, load, len(stage), fmean(seconds), _error(seconds), found.seconds(load))
        for stage, (load, seconds) in zip(stages.values(), points, strict=True)
    )
    return replace(found, levels=tuple(levels))


def _error(seconds: Sequence[float]) -> float:
    return stdev(seconds) / math.sqrt(len(seconds)) if len(seconds) > 1 else math.nan


def mean_of(profile: Profile) -> float:
    """Seconds of a reply alone, in the mean."""
    stragglers = 1.0 + profile.straggler_fraction * (profile.straggler_factor - 1.0)
    return profile.latency * math.exp(profile.spread**2 / 2) * stragglers


# The line: mean seconds against load, since makespans follow the mean, in logarithms, so that twice and half as long
# are as wrong.

Points = Sequence[tuple[float, list[float]]]


def _line(points: Points) -> tuple[float, float]:
    """(mean seconds alone, growth) that miss the means of all levels least, weighted by their replies."""
    levels = [(load - 1.0, math.log(fmean(seconds)), len(seconds)) for load, seconds in points]
    total = sum(weight for _, _, weight in levels)

    def missed(growth: float) -> tuple[float, float]:
        logs = [(log - math.log1p(growth * others), weight) for others, log, weight in levels]
        alone = sum(log * weight for log, weight in logs) / total
        return sum(weight * (log - alone) ** 2 for log, weight in logs), alone

    grid = [0.0, *(10.0 ** (exponent / 10.0) for exponent in range(-50, 11))]
    best = min(range(len(grid)), key=lambda index: missed(grid[index])[0])
    growth = _smallest(lambda each: missed(each)[0], grid[max(0, best - 1)], grid[min(best + 1, len(grid) - 1)])
    if missed(0.0)[0] <= missed(growth)[0]:
        growth = 0.0
    return math.exp(missed(growth)[1]), growth


def _smallest(function: Callable[[float], float], low: float, high: float) -> float:
    """Where the function is smallest, by thirds."""
    for _ in range(60):
        third = (high - low) / 3
        if function(low + third) <= function(high - third):
            high -= third
        else:
            low += third
    return (low + high) / 2


def _profile(points: Points, line: tuple[float, float]) -> Profile:
    """The spread is that of whole replies around the median of their level: their lengths are its main cause."""
    alone, growth = line
    ratios = [each / middle for _, seconds in points for middle in [median(seconds)] for each in seconds]
    shape = replace(latency.fit(ratios), latency=1.0)
    return replace(shape, latency=alone / mean_of(shape), load_growth=growth)


def _resampled(points: Points, draw: random.Random) -> Points:
    return [(load, draw.choices(seconds, k=len(seconds))) for load, seconds in points]


def _estimate(value: float, resampled: Iterable[float]) -> Estimate:
    ordered = sorted(resampled)
    edge = len(ordered) // 20
    return Estimate(value, min(value, ordered[edge]), max(value, ordered[-1 - edge]))


# Lengths.


def _tokens(
    attempts: Sequence[Attempt], loads: dict[Attempt, int], growth: float, draw: random.Random
) -> Tokens | None:
    """What a token takes, at the level where several lengths were asked for; None where that cannot be told."""
    level = next((attempt.at_once for attempt in attempts if attempt.is_short), None)
    told = [a for a in attempts if a.outcome == "replied" and a.tokens and a.at_once == level and a.is_steady]
    pairs = [(float(a.tokens or 0), a.seconds / (1.0 + growth * (loads[a] - 1))) for a in told]
    typical = [a.tokens for a in attempts if a.outcome == "replied" and a.tokens and not a.is_short]
    lengths = [tokens for tokens, _ in pairs]
    if len(pairs) < LEAST or not typical or max(lengths) < _DIFFERENT * min(lengths):
        return None
    slopes = [_slope(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES)]
    seconds = _estimate(_slope(pairs), slopes)
    return Tokens(seconds, median(typical)) if seconds.low > 0.0 else None


def _slope(pairs: Sequence[tuple[float, float]]) -> float:
    middle_x, middle_y = (fmean(column) for column in zip(*pairs, strict=True))
    square = sum((x - middle_x) ** 2 for x, _ in pairs)
    return sum((x - middle_x) * (y - middle_y) for x, y in pairs) / square if square else 0.0


def _limited(profile: Profile, limit: Limit | None, attempts: Sequence[Attempt]) -> Profile:
    """With what it refuses, and what fails."""
    failed = sum(attempt.outcome == "failed" for attempt in attempts)
    if failed:
        profile = replace(profile, error_fraction=failed / len(attempts), error_status=500)
    if limit is None:
        return profile
    asked = [attempt.retry_after or 0.0 for attempt in attempts if attempt.outcome == "refused"]
    if limit.kind == "at once":
        return replace(profile, concurrency_limit=int(limit.value), retry_after=median(asked))
    return replace(profile, rate_limit=limit.value, retry_after=median(asked))


def _doubts(
    attempts: Sequence[Attempt], replies: Sequence[Attempt], tokens: Tokens | None, limit: Limit | None
) -> Iterable[str]:
    if not any(attempt.tokens for attempt in replies):
        yield "what a token takes: the endpoint does not say how many it wrote"
    elif tokens is None:
        yield "what a token takes: replies were about as long, or as slow, however many tokens were allowed"
    if limit is None:
        yield (
            f"what it refuses: nothing up to {max(a.at_once for a in attempts)} at once, nor {_fastest(attempts)}; "
            "a rate over a longer time, or with a larger burst, would not have shown"
        )
    elif limit.wrong > _WRONG:
        yield f"how it refuses: {limit.value:.3g} {limit.kind} explains all but {limit.wrong:.0%} of what it took"
    cut = sum(attempt.is_cut for attempt in replies)
    if cut:
        yield f"how long whole replies are: {cut / len(replies):.0%} were cut at --max-tokens"


def _fastest(attempts: Sequence[Attempt]) -> str:
    """How many left in the fullest second."""
    sent = sorted(attempt.sent for attempt in attempts)
    most = max(bisect.bisect_left(sent, begin + 1.0) - index for index, begin in enumerate(sent))
    return f"{most} in a second"

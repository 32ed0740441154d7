"""What an endpoint refuses: a cap or a rate, whichever would have decided fewer of the attempts otherwise. No IO.

They are hard to tell apart while a load is steady, and then make no difference either; what tells is the first wave,
which a bucket takes whole and a cap does not, and those that come again before a place is free.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from bench.calibrate.attempts import LEAST, Attempt


class Limit(NamedTuple):
    """`value` is how many at once, or how many a second; `wrong` is the share that it would have decided otherwise."""

    kind: Literal["at once", "a second"]
    value: float
    wrong: float
    refused: int


def limit_of(attempts: Sequence[Attempt]) -> Limit | None:
    """A cap or a rate, whichever would have decided fewer of the attempts otherwise; None where nothing was refused."""
    stages: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda each: each.sent):
        stages[attempt.stage].append(attempt)
    pressed = [stage for stage in stages.values() if any(a.outcome == "refused" for a in stage)]
    if not pressed:
        return None
    refused = sum(a.outcome == "refused" for stage in pressed for a in stage)
    total = sum(map(len, pressed))
    cap, wrong = _cap(pressed)
    limits = [Limit("at once", cap, wrong / total, refused)]
    if (rate := _rate(pressed[-1])) is not None:
        limits.append(Limit("a second", rate, _decided_otherwise(pressed, rate) / total, refused))
    return min(limits, key=lambda limit: limit.wrong)


def _cap(stages: Sequence[Sequence[Attempt]]) -> tuple[int, int]:
    """How many at once, and how many attempts it would have decided otherwise."""
    accepted_at, refused_at = Counter[int](), Counter[int]()
    for stage in stages:
        accepted = [attempt for attempt in stage if attempt.outcome != "refused"]
        sent, ended = [a.sent for a in accepted], sorted(a.ended for a in accepted)
        for attempt in stage:
            others = bisect.bisect_left(sent, attempt.sent) - bisect.bisect_right(ended, attempt.sent)
            (refused_at if attempt.outcome == "refused" else accepted_at)[others] += 1
    wrong = sum(accepted_at.values())  # with a cap of nothing at all
    best: list[int] = []
    fewest = math.inf
    for cap in range(1, max([*accepted_at, *refused_at]) + 2):
        wrong += refused_at[cap - 1] - accepted_at[cap - 1]
        if wrong <= fewest:
            best, fewest = ([*best, cap] if wrong == fewest else [cap]), wrong
    return best[len(best) // 2], int(fewest)


def _rate(stage: Sequence[Attempt]) -> float | None:
    """What was accepted between the first refusal and the last: at both nothing was left."""
    refused = [attempt.sent for attempt in stage if attempt.outcome == "refused"]
    accepted = sum(a.outcome != "refused" and refused[0] < a.sent < refused[-1] for a in stage)
    return accepted / (refused[-1] - refused[0]) if accepted >= LEAST else None


def _decided_otherwise(stages: Sequence[Sequence[Attempt]], rate: float) -> int:
    """By a bucket that holds a second's worth, full at first and empty at each refusal."""
    burst, wrong = max(1.0, rate), 0
    allowance: float | None = burst  # None: not known until the next refusal
    for stage in stages:
        before = stage[0].sent
        for attempt in stage:
            is_refused = attempt.outcome == "refused"
            if allowance is not None:
                allowance = min(burst, allowance + rate * (attempt.sent - before))
                wrong += is_refused != (allowance < 1.0)
                allowance = min(1.0, allowance) if is_refused else max(0.0, allowance - 1.0)
            elif is_refused:
                allowance = 0.0
            before = attempt.sent
        allowance = None
    return wrong

"""Refused here and there: is that the pace, or chance? Half is asked for a while, to see.

Where hardly any is refused at half, the endpoint bears a rate. Where as many are refused as before, it was chance: the
cut is taken back, and refusals are overlooked as long as chance explains them.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from .refusals import MOSTLY, Row
from .states import LONGEST_PAUSE, Rate, Window
from .transitions import Asking, State

#: Half is tried where so many refusals are such a share of what left, and so many not less than half of that share.
_FEW, _MANY, _REMEMBERED = 4, 1 / 8, 16
#: Of a trial's first round so many outcomes at most tell of what was before it.
_FIRST_ROUND = 24
#: In a trial so many refusals by chance are waited for; at less than this share of them it has helped.
_EXPECTED, _HELPED = 3.5, 0.25
#: So many refusals among twice as many departures need no longer trial.
_WORSE = 8
#: Chance explains so many times its share and so much more, up to so much, and no row that is as improbable as this.
_TIMES, _MORE, _MOST, _IMPROBABLE = 2.0, 0.15, 0.65, 1e-4


@dataclass(slots=True)
class Trial:
    """Half is asked since departure `after`, and counted from `first`; `before` is what was allowed, and `borne` what
    was accepted in a second since the last trial, where that is known."""

    before: Asking
    after: int
    first: int
    share: float
    borne: float
    refused: int = 0


class Trials:
    """`share` of all requests is refused by chance; 0.0 where that is not believed."""

    def __init__(self, ceiling: int) -> None:
        self.share = 0.0
        self.trial: Trial | None = None
        self._ceiling = ceiling
        self._refused: deque[int] = deque(maxlen=_REMEMBERED)
        self._tried = 0.0, 0  # when the last trial of a rate began, and what was accepted by then

    def forget(self) -> None:
        """An outage: what was refused until now has its reason."""
        self._refused.clear()
        self.trial = None

    def overlooks(self, row: Row, sent: int) -> bool:
        """Whether chance explains the latest refusal; where it does not, chance is no longer believed in."""
        if self.share:
            improbable = math.ceil(math.log(_IMPROBABLE) / math.log(self.share))
            if row.is_silent(improbable) or not _explains(self.share, self._among(sent, _REMEMBERED)):
                self.share = 0.0
        return bool(self.share)

    def begin(
        self, state: State, now: float, others: int, sent: int, accepted: int, latency: float
    ) -> Window | Rate | None:
        """One more is refused: what to ask now, if that is too many."""
        if isinstance(state, Rate):
            state.refused(is_one_of_many=self._among(sent, 2) >= _MANY)
        if not isinstance(state, (Window, Rate)) or not self._is_suspected(sent):
            return None
        half, borne = replace(state), 0.0
        if isinstance(half, Rate):
            (began, by_then), self._tried = self._tried, (now, accepted)
            borne = (accepted - by_then) / (now - began) if 0.0 < began < now else 0.0
        else:
            self._tried = 0.0, 0
            most = max(others + 1, min(half.window, half.proven))
            half = Window(most, self._ceiling, proven=most, is_even=True)
        first = sent + _halve(half, latency)
        self.trial = Trial(state, sent, first, self._among(sent, _FEW), borne)
        return half

    def heard(
        self, number: int, is_refused: bool, state: State, sent: int, latency: float
    ) -> tuple[str, Window | Rate] | None:
        """What this outcome ends a trial with, and the state that follows."""
        if is_refused:
            self._refused.append(number)
        trial = self.trial
        if trial is None or not isinstance(state, (Window, Rate)):
            return None
        last = trial.first + math.ceil(_EXPECTED / trial.share)
        trial.refused += is_refused and trial.first < number <= last
        is_worse = is_refused and number > trial.after and self._among(sent, _WORSE) >= 0.5
        if (is_refused or number <= last) and not is_worse:  # what is accepted is heard later than what is refused
            return None
        found = self._among(sent, _WORSE) if is_worse else trial.refused / (last - trial.first)
        by_pace = max(0.0, 2 * trial.share - 1)  # what is still refused at half, if it is the pace
        self.trial = None
        self._refused.clear()
        if found <= by_pace + _HELPED * (trial.share - by_pace):
            return "helped", self._rate_after(trial, sent, latency)
        if _explains(trial.share, found):
            self.share = found
            return "chance", _window_before(trial) or Window(self._ceiling, self._ceiling)
        self.trial = Trial(trial.before, sent, sent + _halve(state, latency), found, trial.borne)
        return "trial", state

    def _among(self, sent: int, refusals: int) -> float:
        """The share of so many latest refusals in what has left since the first of them."""
        known = len(self._refused) >= refusals
        return refusals / (sent - self._refused[-refusals] + 1) if known else 0.0

    def _is_suspected(self, sent: int) -> bool:
        """Refused here and there, and not only now and then."""
        is_news = len(self._refused) < _REMEMBERED or self._among(sent, _REMEMBERED) >= _MANY / 2
        return self.trial is None and is_news and _MANY <= self._among(sent, _FEW) < MOSTLY

    def _rate_after(self, trial: Trial, sent: int, latency: float) -> Rate:
        before = trial.before
        rate = before.rate if isinstance(before, Rate) else before.window / max(latency, 1e-3)
        rate = trial.borne or 0.98 * max(0.5, 1 - trial.share) * rate
        return Rate(max(1 / LONGEST_PAUSE, rate), self._ceiling, _window_before(trial), cut_after=sent)


def _halve(state: Asking, latency: float) -> int:
    """How many departures of its first round still tell of what was before."""
    if isinstance(state, Rate):
        state.rate /= 2
        return min(_FIRST_ROUND, int(state.rate * latency))
    state.window = max(1, state.window // 2)
    return min(_FIRST_ROUND, state.window)


def _window_before(trial: Trial) -> Window | None:
    return trial.before.before if isinstance(trial.before, Rate) else trial.before


def _explains(share: float, found: float) -> bool:
    return found <= min(_MOST, _TIMES * share + _MORE)

"""The pace: how fast to ask. One policy for limits, retries and outages; see `docs/design/pace.md` for why.

It is told of every departure and outcome, and says when the next may leave; a first attempt and a retry are the same.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from ...reply import Quota
from ...stats import PaceChange, PaceState
from .knee import Knee
from .quota import Allowance
from .refusals import LESS, Chance, Row
from .states import AUTO_START, FIRST_PAUSE, LONGEST_PAUSE, Probing, Rate, Start, Window

AUTO_CEILING = 1024
#: So many answers end the start: the very first may be the shortest of all.
_ENOUGH = 8
#: So many failures in a row with nothing else in the air are an outage.
_ALONE = 4
#: Halved to this part of what it was, it was an outage, and what gets through then ends it.
_DEEP = 8
#: After a refusal the next departure waits until the rest of its burst is heard, in seconds.
_HEARING = 0.02
#: While nothing gets through, this share of what leaves may be retries.
_RETRIES = 0.1
LESS_RATE = 0.5
_MEMORY, _TICK, _LATE, _REMEMBERED = 1 / 32, 1e-9, 0.005, 10
State = Start | Window | Rate | Probing

#: Each way from one state to another, or to another allowance within it, and its reason for people.
TRANSITIONS: dict[tuple[type, str], tuple[type, str]] = {
    (Start, "answered"): (Window, "the first answers are in"),
    (Start, "limit"): (Window, "refused with so many in flight"),
    (Start, "silent"): (Probing, "nothing gets through"),
    (Window, "limit"): (Window, "refused with so many in flight"),
    (Window, "silent"): (Probing, "nothing gets through"),
    (Window, "halved"): (Window, "nothing more gets through, and some are still in flight: half"),
    (Window, "grown"): (Window, "so many were borne: more are tried"),
    (Window, "knee"): (Window, "replies have become slow: is it the pace?"),
    (Window, "trial"): (Window, "some are refused: is it the pace? Half of it is tried"),
    (Window, "helped"): (Rate, "less was refused when less was asked: it bears so many a second"),
    (Window, "chance"): (Window, "as much was refused when less was asked: it is chance, and overlooked"),
    (Window, "quota"): (Rate, "its headers say so"),
    (Rate, "limit"): (Rate, "refused at so many a second"),
    (Rate, "silent"): (Probing, "nothing gets through"),
    (Rate, "trial"): (Rate, "some are refused: is it the pace? Half of it is tried"),
    (Rate, "helped"): (Rate, "less was refused when less was asked: it bears so many a second"),
    (Rate, "chance"): (Window, "refused where nothing was refused before: it is chance, and overlooked"),
    (Rate, "overlooked"): (Rate, "as much was refused when less was asked: it is chance, and overlooked"),
    (Rate, "lifted"): (Window, "so many a second are not refused"),
    (Window, "heard"): (Window, "it answers again: as before"),
    (Window, "heard in time"): (Rate, "it answers again, as seldom as before: it bears so many a second"),
    (Probing, "heard"): (Window, "it answers again: as before"),
    (Probing, "heard in time"): (Rate, "it answers again, as seldom as before: it bears so many a second"),
}


class Pace:
    """`state` is what is allowed now, `changes` how it came to that; `row` has what failed since something got through."""

    def __init__(
        self, ceiling: int, *, finds: bool = False, uniform: Callable[[], float] = random.random
    ) -> None:
        self.ceiling = ceiling
        self.state: State = Start(min(AUTO_START, ceiling), ceiling) if finds else Window(ceiling, ceiling)
        self.row, self.chance, self.allowance = Row(), Chance(), Allowance()
        self.changes: deque[PaceChange] = deque(maxlen=_REMEMBERED)
        self.latency = self._latest = 0.0  # seconds a reply takes: the mean, and the last one
        self.sent = self._answers = self._heard = self._failed = 0
        self._next = -math.inf  # when the next may leave
        self._probes = self._probed_again = 0
        self._resumed: tuple[float, int, int] | None = None  # when an outage was over, what was sent and failed by then
        self._short: tuple[float, int] | None = None  # when refusals were last too many, and what was accepted by then
        self._knee = Knee() if finds else None
        self._uniform = uniform

    @property
    def window(self) -> int:
        return self.state.window

    @property
    def rate(self) -> float:
        return self.state.rate

    @property
    def last_good(self) -> int:
        """The latest departure that got through."""
        return self.row.last_good

    @property
    def is_dry(self) -> bool:
        """Nothing gets through."""
        return isinstance(self.state, Probing)

    @property
    def may_retry(self) -> bool:
        """Whether a retry may go before a first attempt: always, but in an outage, where it is one in ten."""
        return not self.is_dry or self._probed_again < _RETRIES * self._probes

    @property
    def at_once(self) -> float:
        """How many are in flight as things stand."""
        return self.window if self.rate == math.inf else max(1.0, min(self.window, self.rate * self.latency))

    @property
    def words(self) -> str:
        """What is allowed now, for people."""
        if isinstance(self.state, Probing):
            return f"one at a time, after {self.state.pause:.1f} s, until it answers or the deadline has passed"
        return f"{self.window} at once" if self.rate == math.inf else f"{self.rate:.1f} a second"

    @property
    def told(self) -> PaceState:
        """For `judge.stats`."""
        return PaceState(type(self.state).__name__.lower(), self.words, tuple(self.changes))

    def wait(self, now: float, in_flight: int) -> float:
        """Seconds until another may leave; infinity for not before one lands."""
        if in_flight >= self.state.window:
            return self.state.wait(now) if isinstance(self.state, Start) else math.inf
        until = self._next
        if self.allowance.is_window:
            until = max(until, self.allowance.holds_until(now, self.sent))
        return until - now if until > now + _TICK else 0.0

    def departed(self, now: float, in_flight: int, again: bool = False) -> int:
        """A request goes out, for the first time or `again`; its number."""
        self.sent += 1
        state = self.state
        if isinstance(state, Probing):
            self._probes += 1
            self._probed_again += again
        elif self._knee is not None:
            self._knee.departed(self.sent, in_flight, state.window)
        spacing = state.spacing(min(self.latency, 4 * self._latest))  # a mean forgets slowly that all was slow once
        if spacing:
            late = now - self._next  # a timer's delay is made up for
            self._next = now + spacing - (late if 0.0 < late < min(spacing, _LATE) else 0.0)
        return self.sent

    def answered(
        self,
        number: int,
        now: float,
        others: int,
        seconds: float | None = None,
        tokens: int | None = None,
        quota: Quota | None = None,
    ) -> None:
        """The endpoint answered; `seconds` and `tokens` tell of a whole reply, and `others` are in the air."""
        self._answers += 1
        self.row.good(number)
        if seconds is not None:
            self._heard += 1
            self.latency += max(_MEMORY, 1 / self._heard) * (seconds - self.latency)
            self._latest = seconds
        if quota is not None:
            self._heed(quota, number, now - (seconds or 0.0), now)
        self._conclude(number, False, now)
        state = self.state
        if isinstance(state, Probing):
            if number > state.began:
                self._resume(state.before, state.began, state.pressed, now)
        elif isinstance(state, Start):
            if self._answers >= _ENOUGH:
                self._go("answered", Window(state.window, self.ceiling, self.ceiling), now)
        elif seconds is not None and number > state.cut_after and self.chance.trial is None:
            if isinstance(state, Rate):
                state.got_through(self.latency)
                if state.rate * self.latency > 1.5 * self.ceiling:
                    self._go("lifted", Window(self.ceiling, self.ceiling), now)
            elif state.is_even and _DEEP * state.window <= state.goal:
                self._resume(state, state.cut_after, True, now)
            else:
                self._widen(state, number, now, others, seconds, tokens)

    def _widen(
        self, state: Window, number: int, now: float, others: int, seconds: float, tokens: int | None
    ) -> None:
        knee = self._knee
        choice = knee.landed(number, seconds, tokens, others + 1, state.window) if knee is not None else None
        if choice is not None:
            state.window = state.goal = min(choice, self.ceiling)
            self._go("knee", state, now)
        # A place more is earned only where the present ones are used: by what was sent since this one left.
        elif 4 * (self.sent - number + 1) >= state.window and (knee is None or knee.allows(state.window)):
            if state.got_through(others):
                self._go("grown", state, now)

    def failed(self, number: int, now: float, others: int, pressed: bool) -> None:
        """An attempt failed, but not for want of room: by itself it says nothing."""
        self._missed(number)
        self._is_silent(number, now, others, pressed)

    def refused(
        self,
        number: int,
        now: float,
        others: int,
        pressed: bool,
        retry_after: float | None = None,
        quota: Quota | None = None,
    ) -> None:
        """The endpoint had no room; `pressed` says that more samples wait, so that `others` are what it bears."""
        self._missed(number)
        if quota is not None:
            self._heed(quota, number, now, now)
            if self.allowance.is_window and quota.left < 1:  # it has said when to come back
                self._next = max(self._next, now + _HEARING)
                return
        if not others and retry_after is not None:  # nothing is taken at all: nobody may go before
            self._next = max(self._next, now + retry_after + 0.1 * self._uniform() * min(retry_after, FIRST_PAUSE))
        if self.is_dry:
            self._is_silent(number, now, others, pressed)
            return
        self._conclude(number, True, now)
        if self.chance.overlooks(self.row, self.sent):
            return
        self._next = max(self._next, now + min(_HEARING, self.latency / 4 or _HEARING))
        if not self._is_limit(number, now, others, pressed, retry_after) and not self._is_silent(number, now, others, pressed):
            self._try_less(now, others, pressed)

    def _missed(self, number: int) -> None:
        self._failed += 1
        self.row.failed(number)
        if self._knee is not None:
            self._knee.failed(number)

    def _is_limit(self, number: int, now: float, others: int, pressed: bool, retry_after: float | None) -> bool:
        """More than has ever got through is refused; or more than a rate."""
        state = self.state
        if isinstance(state, Rate):
            if self.row.is_silent():
                return False
            state.refused(self.chance.is_much(self.sent))
            if not self.row.is_limit(self.sent) or number <= state.cut_after:
                return False
            state.rate, state.cut_after = max(1 / LONGEST_PAUSE, 0.7 * state.rate), self.sent
            is_new = True
        else:
            # A window that is all in the air says as much as samples that wait: the batch is just as large.
            presses = pressed or 8 * others >= 7 * state.window
            proven, was_cut = (state.proven, state.cut_after) if isinstance(state, Window) else (0, 0)
            is_beyond = presses and 0 < others >= proven  # where nothing has got through yet
            if not is_beyond or not (was_cut or self.row.is_limit(self.sent)):
                return isinstance(state, Window) and number <= state.cut_after and self._follow(state, others)
            is_new = True
            if isinstance(state, Start):
                state = Window(others, self.ceiling)
            state.refused_at(others, self.sent, 8 * (retry_after or 0.0) / max(self.latency, 1e-3))
        if is_new:
            self._go("limit", state, now)
        return True

    def _follow(self, state: Window, others: int) -> bool:
        """One more of the burst that was cut already."""
        if 0 < others < state.window:
            state.window = state.goal = state.bound = state.proven = others
        return True

    def _is_silent(self, number: int, now: float, others: int, pressed: bool) -> bool:
        state = self.state
        if isinstance(state, Probing):
            if number > state.began:
                self._next = max(self._next, now + state.refused(self._uniform()))
            return True
        if not self.row.is_silent(6 if others else _ALONE):
            return False
        self.chance.forget()
        if not others:
            pause = self.latency / 2 or FIRST_PAUSE / 2
            if isinstance(state, Rate):
                pause = 1 / state.rate
            probing = Probing(state, self.sent, pressed, min(LONGEST_PAUSE, max(1e-3, pause)))
            self._probes = self._probed_again = 0
            self._go("silent", probing, now)
            self._next = max(self._next, now + probing.refused(self._uniform()))
        elif isinstance(state, Window) and number > state.cut_after and others < state.proven:
            state.halve(others, self.sent)
            self._go("halved", state, now)
        return True

    def _try_less(self, now: float, others: int, pressed: bool) -> None:
        state = self.state
        if not (pressed and self.last_good) or isinstance(state, (Start, Probing)):
            return
        if not self.chance.is_worth_a_trial(self.sent):
            return
        short, self._short = self._short, (now, self.sent - self._failed)
        borne = 0.0
        if isinstance(state, Rate) and short is not None and now > short[0]:
            borne = (self._short[1] - short[1]) / (now - short[0])
        before = replace(state)
        if isinstance(state, Rate):
            state.rate *= LESS_RATE
        else:
            window = max(1, int(LESS * max(others + 1, min(state.window, state.proven))))
            state = Window(window, self.ceiling, proven=window + 1, is_even=True)
        after = self.sent + self._round(state)
        self.chance.begin(before, after, self.sent, LESS_RATE if isinstance(state, Rate) else LESS, borne)
        self._go("trial", state, now)

    def _round(self, state: Window | Rate) -> int:
        """What leaves in a round trip: the first round of a trial tells of what was before."""
        from . import refusals
        return min(refusals.ROUND, int(state.window if isinstance(state, Window) else state.rate * self.latency))

    def _conclude(self, number: int, is_refused: bool, now: float) -> None:
        trial = self.chance.heard(number, is_refused, self.sent) if not self.is_dry else None
        if trial is None:
            return
        before, state = trial.before, self.state
        if self.chance.trial is not None:
            kind, before = "trial", state
            assert not isinstance(state, (Start, Probing))
            if isinstance(state, Rate):
                state.rate *= trial.less
            else:
                state.window = max(1, int(LESS * state.window))
            self.chance.trial.first = self.sent + self._round(state)
        elif self.chance.share:
            kind = "chance"
            if isinstance(before, Rate) and before.before is not None:
                before = before.before
            elif isinstance(before, Rate):
                kind = "overlooked"
        else:
            rate = before.rate if isinstance(before, Rate) else before.window / max(self.latency, 1e-3)
            window = before.before if isinstance(before, Rate) else before
            rate = trial.borne or 0.98 * max(LESS, 1 - trial.share) * rate
            before = Rate(max(1 / LONGEST_PAUSE, rate), self.ceiling, cut_after=self.sent, before=window)
            kind = "helped"
        self._go(kind, before, now)

    def _heed(self, quota: Quota, number: int, seen: float, now: float) -> None:
        allowance, state = self.allowance, self.state
        allowance.told(quota, number, seen)
        if not allowance.rate or allowance.is_window:
            return
        if isinstance(state, Rate):
            state.most = allowance.rate
        elif isinstance(state, Window) and quota.left < state.window * (quota.cost or 1.0):
            if allowance.rate * self.latency < state.window:
                self._go("quota", Rate(allowance.rate, self.ceiling, allowance.rate), now)

    def _resume(self, before: Start | Window | Rate, began: int, pressed: bool, now: float) -> None:
        """Something got through that left after `began`, when nothing did any more."""
        resumed, self._resumed = self._resumed, (now, self.sent, self._failed)
        self._next = now
        if resumed is not None and pressed and began <= resumed[1] + 4 * before.window:
            accepted = self.sent - resumed[1] - (self._failed - resumed[2])
            rate = max(1, accepted) / max(now - resumed[0], 1e-3)
            self._go("heard in time", Rate(rate, self.ceiling, cut_after=self.sent), now)
        elif isinstance(before, Rate):
            rate = before.borne or before.rate
            self._go("heard in time", Rate(rate, self.ceiling, before.most, cut_after=self.sent), now)
        else:
            window = before.window
            if isinstance(before, Window):
                window = min(max(window, before.goal), before.bound or self.ceiling)
            resumed_at = Window(window, self.ceiling, window, proven=window, is_even=True, cut_after=self.sent)
            self._go("heard", resumed_at, now)

    def _go(self, kind: str, state: State, now: float) -> None:
        target, reason = TRANSITIONS[type(self.state), kind]
        self.state = state
        if self._knee is not None:
            self._knee.begin()
        self.changes.append(PaceChange(now, target.__name__.lower(), self.words, reason))

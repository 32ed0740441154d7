"""The pace: how fast to ask. One policy for limits, retries and outages; `docs/design/pace.md` says why.

It is told of every departure and outcome, and says when the next may leave; a first attempt and a retry are the same.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable

from ...reply import Quota
from ...stats import PaceChange, PaceState
from .knee import Knee
from .quota import Allowance
from .refusals import Chance, Row
from .states import AUTO_START, FIRST_PAUSE, LONGEST_PAUSE, TRANSITIONS, Probing, Start, State, Window

AUTO_CEILING = 1024
#: So many answers end the start: the very first may be the shortest of all.
_ENOUGH = 8
#: After a refusal the next departure waits until the rest of its burst is heard, in seconds.
_HEARING = 0.02
#: Silent again after so few departures, it is asked half as often.
_SOON = 32
#: While nothing gets through, one of so many that leave may be a retry.
_RETRIES = 11
_MEMORY, _TICK, _LATE, _REMEMBERED = 1 / 32, 1e-9, 0.005, 10


class Pace:
    """`state` is what is allowed now, and `changes` how it came to that."""

    def __init__(self, ceiling: int, *, finds: bool = False, uniform: Callable[[], float] = random.random) -> None:
        self.ceiling = ceiling
        self.state: State = Start(min(AUTO_START, ceiling), ceiling) if finds else Window(ceiling, ceiling)
        self.changes: deque[PaceChange] = deque(maxlen=_REMEMBERED)
        self.latency = 0.0  # seconds a reply takes, in the mean
        self.sent = self._answers = 0
        self._next = -math.inf  # when the next may leave
        self._row, self._chance, self._allowance = Row(), Chance(), Allowance()
        self._knee = Knee() if finds else None
        self._uniform = uniform

    @property
    def window(self) -> int:
        return self.state.window

    @property
    def last_good(self) -> int:
        """The latest departure that got through."""
        return self._row.last_good

    @property
    def is_dry(self) -> bool:
        """Nothing gets through."""
        return isinstance(self.state, Probing)

    @property
    def may_retry(self) -> bool:
        """Whether a retry may go before a first attempt: always, but in an outage, where it is one in ten."""
        return not isinstance(self.state, Probing) or self.state.probes % _RETRIES == _RETRIES - 1

    @property
    def told(self) -> PaceState:
        """For `judge.stats`."""
        state = self.state  # once: whoever asks may be in another thread
        return PaceState(type(state).__name__.lower(), self._said(state), tuple(self.changes))

    def wait(self, now: float, in_flight: int) -> float:
        """Seconds until another may leave; infinity for not before one lands."""
        window = self.state.window
        if in_flight >= window or (in_flight and self._row.is_suspect(window, self.state.accident)):
            return math.inf
        until = self._next
        if self._allowance.is_known:
            until = max(until, self._allowance.opens_at(now, self.sent))
        return until - now if until > now + _TICK else 0.0

    def departed(self, now: float, in_flight: int) -> int:
        """A request goes out, and is one of so many in flight; its number."""
        self.sent += 1
        if self._knee is not None and not self.is_dry:
            self._knee.departed(self.sent, in_flight, self.window)
        spacing = self.state.spacing(in_flight, self.latency)
        if spacing:  # a timer's delay is made up for
            late = now - self._next
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
        self._row.good(number)
        if seconds is not None:  # a mean forgets slowly that all was slow once
            share = 1 / 4 if seconds < self.latency / 4 else max(_MEMORY, 1 / self._answers)
            self.latency += share * (seconds - self.latency) if self.latency else seconds
        if quota is not None:
            self._allowance.told(quota, number, now - (seconds or 0.0))
        if self._chance.trial is not None:
            self._hear(number, now, is_refused=False)
        state, knee, choice = self.state, self._knee, None
        if knee is not None and seconds is not None:
            choice = knee.landed(number, seconds, tokens, others + 1, state.window)
        if isinstance(state, Start):
            if self._answers >= _ENOUGH:
                self._go("answered", Window(state.window, self.ceiling), now)
        elif number <= state.cut_after:
            if isinstance(state, Probing):
                state.landed(others)
        elif isinstance(state, Probing):
            self._go("answered", state.before.resumed(self.sent), now)
        elif self._chance.trial is not None or seconds is None:
            return
        elif choice is not None:
            state.places = min(choice, self.ceiling)
            self._go("knee", state, now)
        # A place more is earned only where the present ones are used: by what was sent since this one left.
        elif 4 * (self.sent - number + 1) < state.places or (knee is not None and knee.is_slow):
            return
        elif state.got_through(others + 1):
            self._go("grown", state, now)

    def failed(self, number: int, now: float, others: int) -> None:
        """An attempt failed, but not for want of room: by itself it says nothing."""
        self._not_through(number)
        self._is_silent(number, now, others)

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
        self._not_through(number)
        if quota is not None:
            self._allowance.told(quota, number, now)
            if self._allowance.is_known and quota.left < 1:  # it has said when to come back
                self._next = max(self._next, now + _HEARING)
                return
        if not others and retry_after is not None:  # nothing is taken at all: nobody may go before
            self._next = max(self._next, now + retry_after + 0.1 * self._uniform() * min(retry_after, FIRST_PAUSE))
        self._hear(number, now, is_refused=True)
        if not self.is_dry:
            if self._chance.overlooks(self.sent):
                return
            self._next = max(self._next, now + min(_HEARING, self.latency / 4 or _HEARING))
            if self._is_limit(number, now, others, pressed, retry_after or 0.0):
                return
        if self._is_silent(number, now, others) or not isinstance(self.state, Window) or not pressed:
            return
        half = self._chance.begin(self.state, others, self.sent) if self.last_good else None
        if half is not None:
            self._go("trial", half, now)

    def _not_through(self, number: int) -> None:
        if not self.is_dry:  # where it would be a row without an end
            self._row.failed(number)

    def _hear(self, number: int, now: float, is_refused: bool) -> None:
        """An outcome may end a trial."""
        state = self.state
        if isinstance(state, Window) and (ended := self._chance.heard(number, is_refused, state, self.sent)):
            self._go(*ended, now)

    def _is_limit(self, number: int, now: float, others: int, pressed: bool, retry_after: float) -> bool:
        """Refused with as many in flight as have ever got through."""
        state = self.state
        if not isinstance(state, Window):
            state = Window(state.window, self.ceiling)
        if number <= state.cut_after:  # one more of the burst that was cut already
            if 0 < others < state.window:
                state.places = state.good = others
            return others > 0
        # Where more is tried, what was borne before is known.
        borne = min(state.places, max(others, state.good) if state.step else others)
        # A window that is all in the air says as much as samples that wait: the batch is just as large.
        presses = pressed or 8 * others >= 7 * state.window
        is_known = (state.cut_after and state.good) or self._row.is_one(self.sent)
        if not (presses and 0 < borne >= state.good and is_known):
            return False
        state.refused_at(borne, self.sent, 8 * retry_after / max(self.latency, 1e-3))
        self._row.explain(self.sent)
        self._chance.forget()
        self._go("limit", state, now)
        return True

    def _is_silent(self, number: int, now: float, others: int) -> bool:
        """Nothing gets through: probed, until something that left later does."""
        state = self.state
        if not isinstance(state, Probing):
            if not self._row.is_one(self.sent):
                return False
            before = self._chance.forget() or state
            before = before if isinstance(before, Window) else Window(before.window, self.ceiling)
            if before.resumed_after and self.sent - before.resumed_after <= _SOON:  # so many a second are too many
                before.places = max(before.places / 2, 1 / 64)
            pause = min(LONGEST_PAUSE, max(_HEARING, self.latency / 16 or FIRST_PAUSE))
            state = Probing(before, pause, others)
            self._go("silent", state, now)
        else:
            state.landed(others)
        if number > state.cut_after:
            self._next = max(self._next, now + state.failed(self.sent, self._uniform()))
        return True

    def _go(self, what: str, state: State, now: float) -> None:
        following, reason = TRANSITIONS[type(self.state), what]
        assert type(state) is following
        self.state = state
        self.changes.append(PaceChange(now, following.__name__.lower(), self._said(state), reason))

    def _said(self, state: State) -> str:
        """What a state allows, for people."""
        if isinstance(state, Probing):
            return f"one at a time, after {state.pause:.1f} s, until it answers or the deadline has passed"
        if isinstance(state, Window) and state.places < 1:
            return f"one every {state.spacing(1, self.latency):.1f} s"
        return f"{state.window} at once"

"""The pace: how fast to ask. One policy for limits, retries and outages; `docs/design/pace.md` says why.

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
from .refusals import IN_A_ROW, Row
from .states import AUTO_START, FIRST_PAUSE, LONGEST_PAUSE, Probing, Rate, Start, Window
from .transitions import TRANSITIONS, Asking, State, said
from .trials import Trials

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
_MEMORY, _TICK, _LATE, _REMEMBERED = 1 / 32, 1e-9, 0.005, 10


class Pace:
    """`state` is what is allowed now, and `changes` how it came to that."""

    def __init__(self, ceiling: int, *, finds: bool = False, uniform: Callable[[], float] = random.random) -> None:
        self.ceiling = ceiling
        self.state: State = Start(min(AUTO_START, ceiling), ceiling) if finds else Window(ceiling, ceiling)
        self.changes: deque[PaceChange] = deque(maxlen=_REMEMBERED)
        self.latency = self._latest = 0.0  # seconds a reply takes: the mean, and the last one
        self.sent = self._answers = self._failed = 0
        self._row, self._allowance = Row(), Allowance()
        self._trials = Trials(ceiling)
        self._knee = Knee() if finds else None
        self._next = -math.inf  # when the next may leave
        self._probes = self._probed_again = 0
        self._uncut: Start | Window | None = None  # before the burst of refusals that is being heard
        self._resumed: tuple[float, int, int] | None = None  # when an outage was over, what was sent and failed by then
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
        return self._row.last_good

    @property
    def is_dry(self) -> bool:
        """Nothing gets through."""
        return isinstance(self.state, Probing)

    @property
    def may_retry(self) -> bool:
        """Whether a retry may go before a first attempt: always, but in an outage, where it is one in ten."""
        return not self._is_in_trouble or self._probed_again < _RETRIES * self._probes

    @property
    def _is_in_trouble(self) -> bool:
        return self.is_dry or self._row.is_silent(2 * IN_A_ROW)

    @property
    def at_once(self) -> float:
        """How many are in flight as things stand."""
        return self.window if self.rate == math.inf else max(1.0, min(self.window, self.rate * self.latency))

    @property
    def words(self) -> str:
        """What is allowed now, for people."""
        return said(self.state)

    @property
    def told(self) -> PaceState:
        """For `judge.stats`."""
        state = self.state  # once: whoever asks may be in another thread
        return PaceState(type(state).__name__.lower(), said(state), tuple(self.changes))

    def wait(self, now: float, in_flight: int) -> float:
        """Seconds until another may leave; infinity for not before one lands."""
        state = self.state
        if in_flight >= state.window:
            return state.wait(now) if isinstance(state, Start) else math.inf
        until = max(self._next, self._allowance.opens_at(now, self.sent))
        return until - now if until > now + _TICK else 0.0

    def departed(self, now: float, in_flight: int, again: bool = False) -> int:
        """A request goes out, for the first time or `again`; its number."""
        self.sent += 1
        state = self.state
        if self._is_in_trouble:
            self._probes += 1
            self._probed_again += again
        else:
            self._probes = self._probed_again = 0
            if self._knee is not None:
                self._knee.departed(self.sent, in_flight, state.window)
        if isinstance(state, (Window, Rate)):
            # A mean forgets slowly that all was slow once; and a timer's delay is made up for.
            spacing, late = state.spacing(min(self.latency, 4 * self._latest)), now - self._next
            if spacing:
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
        if seconds is not None:
            self.latency += max(_MEMORY, 1 / self._answers) * (seconds - self.latency) if self.latency else seconds
            self._latest = seconds
        if quota is not None:
            self._heed(quota, number, now - (seconds or 0.0), now)
        self._hear(number, now, is_refused=False)
        state = self.state
        if isinstance(state, Start):
            if self._knee is not None and seconds is not None:
                self._knee.landed(number, seconds, tokens, others + 1, state.window)
            if self._answers >= _ENOUGH:
                self._go("answered", Window(state.window, self.ceiling, self.ceiling), now)
        elif number <= state.cut_after or self._trials.trial is not None:
            return
        elif isinstance(state, Probing) or (
            isinstance(state, Window) and state.is_even and _DEEP * state.window <= state.goal
        ):
            self._resume(state.before if isinstance(state, Probing) else state, now)
        elif isinstance(state, Rate):
            state.got_through(self.latency)
            if state.rate * self.latency > 1.5 * self.ceiling:
                self._go("lifted", Window(self.ceiling, self.ceiling), now)
        elif seconds is not None:
            self._widen(state, number, now, others, seconds, tokens)

    def failed(self, number: int, now: float, others: int, pressed: bool) -> None:
        """An attempt failed, but not for want of room: by itself it says nothing."""
        self._missed(number)
        if self._row.is_silent(2):
            self._next = max(self._next, now + _HEARING)
        self._is_silent(number, now, others, is_full=False)

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
            if self._allowance.is_window and quota.left < 1:  # it has said when to come back
                self._next = max(self._next, now + _HEARING)
                return
        if not others and retry_after is not None:  # nothing is taken at all: nobody may go before
            self._next = max(self._next, now + retry_after + 0.1 * self._uniform() * min(retry_after, FIRST_PAUSE))
        if not self.is_dry:
            self._hear(number, now, is_refused=True)
            if self._trials.overlooks(self._row, self.sent):
                return
            self._next = max(self._next, now + min(_HEARING, self.latency / 4 or _HEARING))
            if self._is_limit(number, now, others, pressed, retry_after or 0.0):
                return
        if not self._is_silent(number, now, others, is_full=True) and pressed and self._row.last_good:
            accepted = self.sent - self._failed
            half = self._trials.begin(self.state, now, others, self.sent, accepted, self.latency)
            if half is not None:
                self._go("trial", half, now)

    def _hear(self, number: int, now: float, is_refused: bool) -> None:
        """An outcome may end a trial."""
        ended = self._trials.heard(number, is_refused, self.state, self.sent, self.latency)
        if ended is not None:
            self._go(*ended, now)

    def _missed(self, number: int) -> None:
        self._failed += 1
        self._row.failed(number)
        if self._knee is not None:
            self._knee.failed(number)

    def _widen(self, state: Window, number: int, now: float, others: int, seconds: float, tokens: int | None) -> None:
        knee = self._knee
        choice = knee.landed(number, seconds, tokens, others + 1, state.window) if knee is not None else None
        if choice is not None:
            state.window = state.goal = min(choice, self.ceiling)
            self._go("knee", state, now)
        # A place more is earned only where the present ones are used: by what was sent since this one left.
        is_used = 4 * (self.sent - number + 1) >= state.window
        if choice is None and is_used and (knee is None or not knee.is_slow) and state.got_through(others):
            self._go("grown", state, now)

    def _is_limit(self, number: int, now: float, others: int, pressed: bool, retry_after: float) -> bool:
        """Refused with as many in flight as have ever got through."""
        state = self.state
        if not isinstance(state, (Start, Window)):
            return False
        if isinstance(state, Window) and number <= state.cut_after:  # one more of the burst that was cut already
            if 0 < others < state.window:
                if state.goal <= state.window:  # else it is halved, and nobody knows of a limit
                    state.goal = state.bound = others
                state.window = state.proven = others
            return others > 0
        # A window that is all in the air says as much as samples that wait: the batch is just as large.
        presses = pressed or 8 * others >= 7 * state.window
        proven, was_cut = (state.proven, state.cut_after) if isinstance(state, Window) else (0, 0)
        if isinstance(state, Window) and 0 < state.bound < state.window:
            proven -= max(1, proven // 32)  # one more is tried, and others have landed while it was refused
            others = max(others, state.bound) if others >= proven else others
        if not (presses and 0 < others >= proven and (was_cut or self._row.is_limit(self.sent))):
            return False
        self._uncut = replace(state)
        state = state if isinstance(state, Window) else Window(others, self.ceiling)
        state.refused_at(others, self.sent, 8 * retry_after / max(self.latency, 1e-3))
        self._go("limit", state, now)
        return True

    def _is_silent(self, number: int, now: float, others: int, is_full: bool) -> bool:
        """Nothing gets through: what is allowed is halved while others are in the air, and then probed."""
        state = self.state
        if not isinstance(state, Probing):
            if not self._row.is_silent(IN_A_ROW if others else _ALONE):
                return False
            self._trials.forget()
            if others and not isinstance(state, Rate):
                self._drain(state, number, now, others, is_full)
                return True
            pause = 1 / state.rate or self.latency / 2 or FIRST_PAUSE
            if isinstance(state, Window) and number <= state.cut_after and self._uncut is not None:
                before: Start | Asking = self._uncut  # of all that burst nothing got through: it was no limit
            else:
                before = state
            state = Probing(before, self.sent, min(LONGEST_PAUSE, max(1e-3, pause)))
            self._go("silent", state, now)
        if number > state.cut_after:
            state.cut_after = self.sent
            self._next = max(self._next, now + state.refused(self._uniform()))
        return True

    def _drain(self, state: Start | Window, number: int, now: float, others: int, is_full: bool) -> None:
        """Half of what is left in the air are enough, and nobody takes the place of what has failed."""
        if isinstance(state, Start):
            self._go("halved", Window(others, self.ceiling, state.window, is_even=True, cut_after=self.sent), now)
        elif number <= state.cut_after:
            state.window = min(state.window, others)
        elif not (is_full and others >= state.proven):  # else a limit is being met
            state.halve(others, self.sent)
            self._go("halved", state, now)

    def _resume(self, before: Start | Asking, now: float) -> None:
        """Something got through: as before, but evenly spaced; or, if that was refused so soon, what was accepted."""
        resumed, self._resumed = self._resumed, (now, self.sent, self._failed)
        self._next = now
        began = self.state.began if isinstance(self.state, Probing) else math.inf
        if resumed is not None and began <= resumed[1] + 4 * before.window:
            accepted = max(1, self.sent - resumed[1] - (self._failed - resumed[2]))
            borne = Rate(accepted / max(now - resumed[0], 1e-3), self.ceiling, cut_after=self.sent)
            self._go("heard at a rate", borne, now)
        elif isinstance(before, Rate):
            rate = before.borne or before.rate
            self._go("heard at a rate", Rate(rate, self.ceiling, most=before.most, cut_after=self.sent), now)
        else:
            window, bound = before.window, 0
            if isinstance(before, Window):
                window, bound = max(window, before.goal), before.bound
            window = min(window, bound or self.ceiling)
            again = Window(window, self.ceiling, window, bound, window, is_even=True, cut_after=self.sent)
            self._go("heard", again, now)

    def _heed(self, quota: Quota, number: int, seen: float, now: float) -> None:
        self._allowance.told(quota, number, seen)
        told = self._allowance.change(self.state, self.latency, self.ceiling)
        if told is not None:
            self._go(*told, now)

    def _go(self, what: str, state: State, now: float) -> None:
        following, reason = TRANSITIONS[type(self.state), what]
        assert type(state) is following
        self.state = state
        if self._knee is not None and what not in ("answered", "grown"):
            self._knee.begin()
        self.changes.append(PaceChange(now, following.__name__.lower(), self.words, reason))

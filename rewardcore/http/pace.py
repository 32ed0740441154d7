"""How fast to ask: one policy for limits, retries and outages. Pure logic, told of every departure and outcome.

**What is sensed.** A refusal (429, 503, or three other failures in a row among what left last); how many others were
in the air when it came; how many requests were accepted since the last one; `Retry-After`; what an endpoint says is
left of its quota; seconds per token, by whole cohorts (`knee.py`, for "auto" alone). Departures are numbered: what was
sent before a cut says nothing about the time after it, and a reply to a later departure is what ends a silence.

**What is decided.** `window`, how many may be in flight, and `rate`, how many may leave in a second; a first attempt
and a retry are the same to both. A refusal cuts at once, to what is left in the air. What it meant is concluded when
something gets through again:
- Refused at the same number in flight each time, it is a cap: the window stays there, and one place more is tried now
  and then, less and less often; as soon as that holds, more.
- Refused at another number each time, it is a rate. Between two refusals an endpoint accepts just what it bears, so the
  rate is what was accepted meanwhile; it is tried a little higher, and higher, until it is refused again.
- Nothing got through at all for three cuts, or nothing is in the air: a storm, or an outage. The window is halved, then
  one probe at a time goes out after growing pauses; when one gets through, all is as before, evenly spaced.
- Refused even at half of what was accepted before, it is neither: it is chance (`chance.py`), and is overlooked.
Until it is known which, departures are evenly spaced, since in a bunch a rate looks like a cap.

**What it does not do.** It does not count a sample's attempts (`retry.py` does), and knows no clock. Where the limit is
fixed it takes no notice of an endpoint that answers late instead of refusing. It does not ask who else asks there.

**What was tried** is in CONTRIBUTING.md, with figures. From AIMD is the doubling start, from TCP's recovery one cut
for a whole flight of losses, from BBR the even spacing and the accepted rate as the measure, from Vegas and gradient
limits of Netflix's concurrency-limits the suspicion, not the verdict, that slow means crowded.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..reply import Quota
from .chance import Chance
from .knee import Knee

AUTO_START = 8
AUTO_CEILING = 1024
#: Where nothing is known, places double each so many seconds, up to so many, until the first answers say more.
_DOUBLING, _BLIND = 0.15, 512
#: So many cuts, or other failures, in a row are no accident; of more than so many cuts the middle is forgotten.
_IN_A_ROW, _REMEMBERED = 3, 32
#: Seconds: the first pause of an endpoint that has never answered, and the longest of all.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
#: How much longer each pause is than the one before, and how far jitter moves it: what is slept past a silence's end
#: is lost, and doubled pauses at full jitter slept a third of it (CONTRIBUTING.md).
_GROWTH, _JITTER = 1.5, 0.25
#: So many accepted requests make a rate, and so many answers end the start in the dark.
_ENOUGH = 8
#: Refused at the same number so often after the first time, it is a cap.
_AGREED = 2
#: Evenly spaced departures are this much quicker than the window asks for, so that the window stays full.
_EVEN = 1.1
#: Below so many places an empty window is not filled in one go; above, within this share of a round trip, so that
#: whoever refuses all of it is heard before all of it has left.
_FEW, _FILLING = 16, 0.02
_MEMORY, _HEALTH_MEMORY, HEALTHY = 1 / 32, 1 / 8, 0.9
#: While requests fail, this share of them may be retries.
_RETRIES = 0.1
_TICK, _LATE = 1e-9, 0.005


class Learnt(NamedTuple):
    """What one run leaves to the next: how many at once and how many a second, where either was found; None is all."""

    window: int | None
    rate: float | None
    latency: float

    def written(self) -> dict[str, float | None]:
        return self._asdict()

    @classmethod
    def read(cls, facts: Mapping[str, object]) -> Learnt | None:
        """None where there is nothing, or nonsense."""
        window, rate, latency = (facts.get(name) for name in cls._fields)
        if type(latency) is not float or not 0.0 < latency < math.inf:
            return None
        if (window is not None and (type(window) is not int or window < 1)) or (
            rate is not None and (type(rate) is not float or not 1 / LONGEST_PAUSE <= rate < math.inf)
        ):
            return None
        return cls(window, rate, latency)


class Cut(NamedTuple):
    """A refusal: its departure, the others in the air (0 where that says nothing), and what was allowed until then."""

    number: int
    others: int
    window: int
    rate: float


class Resumed(NamedTuple):
    """When something last got through after a refusal, and what had been sent, and refused, by then."""

    now: float
    sent: int
    refused: int


class Pace:
    """`window` and `rate` are what is allowed now; `last_good` is the latest departure that got through."""

    def __init__(
        self,
        ceiling: int,
        *,
        finds: bool = False,
        learnt: Learnt | None = None,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self.ceiling = ceiling
        self.window = min(AUTO_START, ceiling) if finds else ceiling
        self.rate = math.inf
        self.latency = self._latest = 0.0  # seconds a reply takes: the mean, and the last one
        self.health = 1.0
        self.sent = 0
        self._uniform = uniform
        self._heard = self._answers = 0
        self._next = -math.inf  # when the next may leave
        self._next_place = -math.inf  # when the next place comes, before anybody has answered
        self._is_blind = finds
        self._chance = Chance()
        self._knee = Knee() if finds else None
        # Growth: below `_target` a place for each reply; above it `_step` of the window, after `_caution` replies.
        self._target = ceiling
        self._step = 0.0
        self._progress = 0
        self._caution = 1
        # Cuts: the last one, and those that nothing got through after.
        self._cut_after = 0
        self._cut_at = 0.0
        self._refused = self._refused_in_all = 0
        self._silence: deque[Cut] = deque()
        self._bound: int | None = None
        self._agreed = 0
        self._is_even = self._is_filling = False
        self._resumed = Resumed(0.0, 0, 0)
        self._restored: Resumed | None = None  # when a storm was last taken for over
        self.is_dry = False  # nothing is in the air, and the last that was did not get through
        self.last_good = 0
        self._failed_in_a_row = 0
        self._sent_in_trouble = self._retried_in_trouble = 0
        if learnt is not None:
            self.latency, self._heard = learnt.latency, 1
            if learnt.rate is not None:
                self._keep_to(learnt.rate)
            elif learnt.window is not None:
                self._is_blind = False
                self.window = self._target = min(learnt.window, ceiling)

    @property
    def learnt(self) -> Learnt | None:
        """None where nothing was: a fixed limit that was never met says nothing about the endpoint."""
        in_a_storm = self.is_dry or len(self._silence) >= _IN_A_ROW
        borne = self._silence[0] if in_a_storm and self._silence else self
        window, rate = borne.window, borne.rate
        is_found = rate == math.inf and (window < self.ceiling or self._knee is not None)
        if not self._heard or not (is_found or rate < math.inf):
            return None
        return Learnt(window if is_found else None, rate if rate < math.inf else None, self.latency)

    @property
    def may_retry(self) -> bool:
        """Whether a retry may go before a first attempt: always, but while requests fail, where it is one in ten."""
        return self.health >= HEALTHY or self._retried_in_trouble < _RETRIES * self._sent_in_trouble

    @property
    def at_once(self) -> float:
        """How many are in flight as things stand."""
        return self.window if self.rate == math.inf else max(1.0, min(self.window, self.rate * self.latency))

    @property
    def words(self) -> str:
        """What is allowed now, for people."""
        if self.is_dry:
            return f"one at a time, after {1 / self.rate:.1f} s, until it answers or the deadline has passed"
        return f"{self.window} at once" if self.rate == math.inf else f"{self.rate:.1f} a second"

    def wait(self, now: float, in_flight: int) -> float:
        """Seconds until another may leave; infinity for not before one lands."""
        if in_flight >= self.window:
            return self._next_place_in(now) if self._is_blind else math.inf
        return self._next - now if self._next > now + _TICK else 0.0

    def departed(self, now: float, in_flight: int, again: bool = False) -> int:
        """A request goes out, for the first time or `again`; its number."""
        self.sent += 1
        if self.health < HEALTHY:
            self._sent_in_trouble += 1
            self._retried_in_trouble += again
        else:
            self._sent_in_trouble = self._retried_in_trouble = 0
        if self._knee is not None:
            self._knee.departed(self.sent, in_flight, self.window)
        if in_flight >= self.window:
            self._is_filling = False
        elif in_flight <= 1:
            self._is_filling = (
                self._agreed > 0 or (self._bound is None and not self._is_even) or (self._bound or 0) >= _FEW
            )
        if self.rate < math.inf or self._is_even:
            round_trip = min(self.latency, 4 * self._latest)  # a mean forgets slowly that all was slow once
            share = _FILLING if self._is_filling else 1 / _EVEN
            spacing = 1 / self.rate if self.rate < math.inf else share * round_trip / self.window
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
        if self._answers >= _ENOUGH:  # the very first may be the shortest of all
            self._is_blind = False
        self.health += _HEALTH_MEMORY * (1.0 - self.health)
        self._chance.answered(now, self.latency, self._per_second)
        if number > self.last_good:
            self.last_good, self._failed_in_a_row = number, 0
        if self._silence and number > self._silence[0].number:
            self._hear(number, now)
        if seconds is None:
            return
        self._heard += 1
        self.latency += max(_MEMORY, 1 / self._heard) * (seconds - self.latency)
        self._latest = seconds
        if quota is not None and quota.left < self.window:
            self._keep_to(min(self.rate, quota.rate))
        choice = None
        if self._knee is not None and self.rate == math.inf:
            choice = self._knee.landed(number, seconds, tokens, others + 1, self.window)
        if choice is not None:
            self.window = self._target = min(choice, self.ceiling)
        elif number > self._cut_after:
            if self._bound is None and number > self._cut_after + 2 * self.window:
                self._is_even = False  # the storm is over indeed
            self._quicken() if self.rate < math.inf else self._widen(number)

    def failed(self, number: int, now: float, others: int, pressed: bool) -> None:
        """An attempt failed, but not for want of room: it may be the sample's fault, or nothing gets through."""
        self._chance.failed(number)
        if number > self.last_good:
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= _IN_A_ROW:
                return self.refused(number, now, others, pressed)
        self.health -= _HEALTH_MEMORY * self.health

    def refused(self, number: int, now: float, others: int, pressed: bool, retry_after: float | None = None) -> None:
        """The endpoint had no room; `pressed` says that more samples wait, so that `others` are what it bears."""
        self._is_blind = False
        self.health -= _HEALTH_MEMORY * self.health
        self._refused += 1
        self._refused_in_all += 1
        was_believed = bool(self._chance.share)
        is_cap = self.rate == math.inf and self._bound is not None and _is_same(others, self._bound)
        if self._chance.refused(number, self.latency, math.inf if is_cap else self._per_second):
            if not was_believed:
                self._forgive(now)
            return
        if self._knee is not None:
            self._knee.begin()
        # A window that is all in the air says as much as samples that wait: the batch is just as large.
        pressed = pressed or 8 * others >= 7 * self.window
        is_new = number > self._cut_after  # else it is one more of the burst that was cut already
        if is_new:
            if len(self._silence) == _REMEMBERED:
                self._silence.pop()
            self._silence.append(Cut(number, others if pressed else 0, self.window, self.rate))
        # At less than one a round trip, to be alone is no sign of an outage.
        is_lonely = self.rate * self.latency <= 1.0 and not self.is_dry and len(self._silence) < _IN_A_ROW
        if not others and not is_lonely:
            self._pause(now)
        elif self.rate < math.inf:
            if is_new and (pressed or others):
                self._slow_down(now)
        elif pressed:
            self._narrow(others, is_new)
        if retry_after is not None and not others:  # nothing is taken at all: nobody may go before
            self._next = max(self._next, now + retry_after + 0.1 * self._uniform() * min(retry_after, FIRST_PAUSE))
        if is_new:
            self._progress = 0
            self._cut_after, self._cut_at, self._refused = self.sent, now, 0

    @property
    def _per_second(self) -> float:
        """How many may leave in a second as things stand."""
        return min(self.rate, self.window / max(self.latency, 1e-3))

    # What a refusal does at once.

    def _narrow(self, others: int, is_new: bool) -> None:
        if not is_new:
            self.window = max(1, self.window - 1)
            if self._silence:
                self._silence[-1] = self._silence[-1]._replace(others=self.window)
        elif len(self._silence) >= _IN_A_ROW:
            self.window = max(1, others // 2)
        else:
            self.window = max(1, min(self.window, others))
        self._target = self.window if len(self._silence) < _IN_A_ROW else self._silence[0].window
        self._step = 0.0
        self._is_even, self._is_filling = self._agreed < _AGREED or others >= _FEW, False

    def _slow_down(self, now: float) -> None:
        accepted = self._accepted(now)
        factor = max(0.85, min(0.98, 0.98 * accepted / self.rate)) if accepted else 0.6
        self._keep_to(factor * self.rate)
        self._next = max(self._next, now + 1 / self.rate)

    def _pause(self, now: float) -> None:
        """One at a time from here on, after a pause: a growing one, or as long as what was accepted says."""
        self.is_dry = True
        accepted = self._accepted(now) if not self._silence or self._silence[0].window <= 2 else 0.0
        present = min(self.rate, 1 / max(1e-3, self.latency if accepted else self.latency / 2 or FIRST_PAUSE / 2))
        self.rate, self._step = max(1 / LONGEST_PAUSE, present / _GROWTH, min(present, 0.98 * accepted)), 1.0
        if accepted:
            self._step = 1 / 64
        self.window = self._target = 1
        self._next = now + (1 + _JITTER * (2 * self._uniform() - 1)) / self.rate

    def _keep_to(self, rate: float) -> None:
        """The rate rules from here on, and the window does not."""
        self.rate, self.window, self._step = max(rate, 1 / LONGEST_PAUSE), self.ceiling, 1 / 64

    def _accepted(self, now: float) -> float:
        """Requests a second that were accepted since the last cut; 0.0 where they are too few to tell."""
        accepted, elapsed = self.sent - self._cut_after - self._refused, now - self._cut_at
        return accepted / elapsed if accepted >= _ENOUGH and elapsed > 0.0 else 0.0

    # What is concluded when something gets through again.

    def _hear(self, number: int, now: float) -> None:
        """Of the cuts before this departure, none can be a silence any more; those after it may."""
        first, cuts = self._silence[0], 0
        while self._silence and self._silence[0].number < number:
            self._silence.popleft()
            cuts += 1
        resumed, self._resumed = self._resumed, Resumed(now, self.sent, self._refused_in_all)
        if not self._silence and (cuts >= _IN_A_ROW or (self.is_dry and first.window > 2)):
            restored, self._restored = self._restored, self._resumed
            is_repeated = restored is not None and first.number <= restored.sent + 4 * first.window
            self._restore(first, now, self._borne(restored, now) if restored and is_repeated else 0.0)
        elif first.others:
            self._conclude(first)
        if self.rate < math.inf and self.sent - resumed.sent >= _ENOUGH:
            self.rate = max(self.rate, 0.95 * self._borne(resumed, now))
        self.is_dry = self.is_dry and bool(self._silence)

    def _borne(self, since: Resumed, now: float) -> float:
        """From one moment at which something got through again to the next, just so much is accepted as is borne."""
        accepted = self.sent - since.sent - (self._refused_in_all - since.refused)
        return max(1, accepted) / max(now - since.now, 1e-3)

    def _restore(self, first: Cut, now: float, borne: float) -> None:
        """A storm is over: what was borne before it is borne again, evenly spaced; unless that brought the storm."""
        self._is_even, self._bound, self._progress = True, None, 0
        self._next = now
        if first.rate < math.inf:
            self._keep_to(0.7 * first.rate)
        elif borne:
            probes = self.rate if self.rate < math.inf else 0.0  # where little was asked, little seems to be borne
            self._keep_to(max(borne, probes))
        else:
            self.window = self._target = first.window
            self.rate, self._step = math.inf, 0.0

    def _forgive(self, now: float) -> None:
        """It was chance, not the pace: back to what was accepted before, evenly spaced, and on from there."""
        self._silence.clear()
        self.is_dry, self._is_even, self._bound = False, True, None
        self._agreed, self._caution, self._progress = 0, 1, 0
        self.rate, self._step, self._next = math.inf, 0.25, now
        self.window = self._target = min(self.ceiling, max(1, math.ceil(self._chance.width)))

    def _conclude(self, cut: Cut) -> None:
        """Some got through and some did not: a cap, if it was at the same number in flight as the last time."""
        bound, self._bound = self._bound, cut.others
        if bound is None or _is_same(cut.others, bound):
            self._agreed += bound is not None
            self._caution = min(max(128, 2 * cut.others), 2 * self._caution)
            if self.rate < math.inf and self._agreed >= _AGREED:
                self.rate, self.window, self._target, self._step = math.inf, cut.others, cut.others, 0.0
            self._is_even = self._agreed < _AGREED or cut.others >= _FEW
            return
        if self.rate == math.inf and self._agreed < 2 * _AGREED:
            self._keep_to(0.85 * cut.window / max(self.latency, 1e-3))
        else:  # it was a cap for long: it has moved
            self._is_even = True
        self._agreed, self._caution = 0, 1

    # What success brings.

    def _next_place_in(self, now: float) -> float:
        end = min(_BLIND, self.ceiling)
        if self._next_place == -math.inf:
            self._next_place = now + _DOUBLING * math.log2(1 + 1 / self.window)
        if self._next_place <= now + _TICK and self.window < end:
            while self._next_place <= now + _TICK and self.window < end:
                self.window += 1
                self._next_place += _DOUBLING * math.log2(1 + 1 / self.window)
            return 0.0
        return self._next_place - now if self.window < end else math.inf

    def _widen(self, number: int) -> None:
        # A place more is earned only where the present ones are used: by what was sent since this one left.
        if self.window >= self.ceiling or 2 * (self.sent - number + 1) < self.window:
            return
        if self._knee is not None and not self._knee.allows(self.window):
            return
        if self.window < self._target:
            self.window += 1
            return
        self._progress += 1
        if self._progress >= max(self._caution, self.window):
            self._progress = 0
            self.window = self._target = min(self.ceiling, self.window + max(1, int(self._step * self.window)))
            if self._step:
                self._is_even, self._caution = True, 1
            self._step = min(1.0, 2 * self._step or 0.25)

    def _quicken(self) -> None:
        self._progress += 1
        if self._progress < (max(_ENOUGH, self.rate * self.latency / 2) if self._step < 1.0 else 1):
            return
        self._progress = 0
        self.rate *= 1 + self._step
        if self._step < 1.0:
            self._step = min(0.25, 2 * self._step)
        if self.rate * self.latency > 1.5 * self.ceiling:
            self.rate = math.inf
        if self.rate * self.latency > 1.0:
            self.window = self.ceiling


def _is_same(others: int, bound: int) -> bool:
    return abs(others - bound) <= max(1, bound // 32)

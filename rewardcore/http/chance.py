"""Whether refusals come by chance: as often, however slowly one asks. Pure logic, beside `pace.py`.

Whoever is asked for less than half of what it has accepted of late has room. An endpoint that refuses even so, now and
then, does not mean our pace: one replica of many is broken, or others ask there too. Slower is then only slower, and
without this the pace would fall to a probe every few seconds. What is sensed: the most that was accepted in a second
and at once, and what was refused among what left at less than `_LOW` of both. Once it is believed, a refusal is
overlooked, as long as no more are refused than chance explains; the pace goes back to what was accepted, and on.
"""

from __future__ import annotations

import math

#: Below this share of what was accepted before, a limit does not refuse.
_LOW = 0.5
#: So many refusals there, and for each so many accepted, are chance; twice as many each time that this was wrong.
_REFUSED, _ACCEPTED, _MOST_WANTED = 3, 2, 96
#: What is accepted in a second is measured over so many requests, round trips and seconds; its memory fades with each.
_SPAN, _ROUND_TRIPS, _SECONDS, _FADING = 32, 2.0, 1.0, 0.98
#: So many answers say how long one takes, and so what is borne one after the other; when one takes so much longer, what
#: was borne before says nothing any more.
_ENOUGH, _SLOWER = 8, 2.0
#: How many outcomes the present share and the believed one are of.
_RECENT, _MEMORY = 1 / 32, 1 / 512
#: More than chance: so many times its share and so much more, and this at the most.
_TIMES, _MORE, _MOST = 2.0, 0.15, 0.65
#: So many in a row are no chance either.
_UNLIKELY = 1e-4
#: A belief that is shaken within so many outcomes was none; one that has become smaller than this is over.
_YOUNG, _LEAST = 64, 0.005


class Chance:
    """`share` of all attempts is refused by chance; 0.0 where that is not believed. `width` was accepted at once."""

    def __init__(self) -> None:
        self.share = 0.0
        self.width = 0.0
        self._flow = 0.0  # accepted in a second
        self._latency = 0.0  # at that time
        self._recent = 0.0
        self._began, self._latency_then, self._accepted = math.inf, 0.0, 0
        self._low_refused = self._low_accepted = 0
        self._age = self._answers = 0
        self._wanted = _REFUSED
        self._latest = self._row = 0

    def answered(self, now: float, latency: float, pace: float) -> None:
        """`pace` is how many may leave in a second."""
        self._count(0.0)
        self._low_accepted += self._is_low(pace, latency)
        self._accepted += 1
        self._answers += 1
        if latency > _SLOWER * self._latency and self._answers >= _ENOUGH:  # one after the other, for all that is known
            self._flow, self.width, self._latency = 1 / latency, 1.0, latency
        seconds = now - self._began
        if seconds < 0.0:
            if latency:  # the first reply's is known with the next
                self._begin(now, latency)
        elif self._accepted >= _SPAN and seconds >= max(_SECONDS, _ROUND_TRIPS * latency):
            flow = self._accepted / seconds
            if flow > _FADING * self._flow:
                self._latency = min(latency, self._latency_then)  # it may have become slow meanwhile
                self._flow, self.width = flow, max(1.0, flow * self._latency)
            else:
                self._flow, self.width = _FADING * self._flow, max(1.0, _FADING * self.width)
            self._begin(now, latency)

    def _begin(self, now: float, latency: float) -> None:
        self._began, self._latency_then, self._accepted = now, latency, 0

    def failed(self, number: int) -> None:
        """Not refused, but it did not get through either."""
        self._latest = max(number, self._latest)

    def refused(self, number: int, latency: float, pace: float) -> bool:
        """Whether it is chance, and to be overlooked; `number` is its departure's."""
        is_lone = number > self._latest + 1  # a storm refuses one after another
        self._row = 1 if is_lone else self._row + 1
        self._latest = max(number, self._latest)
        self._count(1.0)
        if self.share:
            if self._recent <= min(_MOST, _TIMES * self.share + _MORE) and self.share**self._row >= _UNLIKELY:
                return True
            if self._age < _YOUNG:
                self._wanted = min(2 * self._wanted, _MOST_WANTED)
                self._forget()
            self._recent = self.share
            return False
        if is_lone and self._is_low(pace, latency):
            self._low_refused += 1
            if self._low_refused >= self._wanted and self._low_accepted >= _ACCEPTED * self._low_refused:
                self.share = self._recent = self._low_refused / (self._low_refused + self._low_accepted)
                self._age = self._low_refused = self._low_accepted = 0
                return True
        return False

    def _forget(self) -> None:
        """What was accepted before says nothing any more."""
        self.share = self.width = self._flow = self._latency = 0.0
        self._low_refused = self._low_accepted = 0
        self._began = math.inf

    def _is_low(self, pace: float, latency: float) -> bool:
        """Neither a rate nor a cap can be meant."""
        return pace <= _LOW * self._flow and pace * latency <= _LOW * self.width

    def _count(self, refused: float) -> None:
        self._recent += _RECENT * (refused - self._recent)
        if self.share:
            self._age += 1
            self.share += _MEMORY * (refused - self.share)
            if self.share < _LEAST:
                self.share = 0.0

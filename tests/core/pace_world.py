"""Endpoints and a client for the tests of the pace, in virtual time: no sockets, no waiting, no engine."""

import heapq
import math
import random
from collections import Counter, deque

from rewardcore.http.pace import Pace
from rewardcore.reply import Quota

TOKENS = 100


class World:
    """A client that always has more to send, and an endpoint: a function of the time and of how many it serves, that
    says of each arrival what becomes of it ("fine", "refused", "broken"), after how many seconds, and with which quota.
    """

    def __init__(self, pace, endpoint, tokens=lambda seconds: TOKENS):
        self.pace, self.endpoint, self.tokens = pace, endpoint, tokens
        self.now = 0.0
        self.serving = self.most = 0
        self.outcomes = []  # time, what, and the window after it
        self.ways = Ways(pace)
        self._counts = Counter()
        self._air = []

    def run(self, until=math.inf, replies=math.inf):
        while self.count("fine") < replies:
            wait = self.pace.wait(self.now, len(self._air))
            if wait == 0.0:
                self._send()
                continue
            lands = self._air[0][0] if self._air else math.inf
            assert min(lands, self.now + wait) < math.inf, "somebody always gets on"
            if min(lands, self.now + wait) > until:
                self.now = until
                break
            if lands <= self.now + wait:
                self._land()
            else:
                self.now += wait
        return self

    def _send(self):
        what, seconds, *quota = self.endpoint(self.now, self.serving)
        self.serving += what == "fine"
        number = self.pace.departed(self.now, len(self._air) + 1)
        heapq.heappush(self._air, (self.now + seconds, number, what, seconds, quota))
        self.most = max(self.most, len(self._air))

    def _land(self):
        self.now, number, what, seconds, quota = heapq.heappop(self._air)
        others = len(self._air)
        if what == "fine":
            self.serving -= 1
            self.pace.answered(number, self.now, others, seconds, self.tokens(seconds), *quota)
        elif what == "refused":
            self.pace.refused(number, self.now, others, True, None, *quota)
        else:
            self.pace.failed(number, self.now, others)
        self.outcomes.append((self.now, what, self.pace.window))
        self._counts[what] += 1
        self.ways.look()

    def count(self, what):
        return self._counts[what]

    def windows(self, start, end=math.inf):
        return [window for time, _, window in self.outcomes if start <= time < end]


class Ways:
    """Which ways a pace has gone from state to state, and why: it keeps the latest ten alone."""

    def __init__(self, pace):
        self.pace, self.seen = pace, []
        self.first = pace.told.state

    def look(self):
        changes = list(self.pace.changes)
        known = next((place for place, change in enumerate(changes, 1) if self.seen and change is self.seen[-1]), 0)
        self.seen += changes[known:]
        return self

    @property
    def taken(self):
        """The state before, the state after, and the reason."""
        befores = [self.first, *(change.state for change in self.seen)]
        return {(before, change.state, change.reason) for before, change in zip(befores, self.seen, strict=False)}


def at_once(places, seconds=1.0, refusal=0.01):
    return lambda now, serving: ("fine", seconds) if serving < places else ("refused", refusal)


def a_second(rate, seconds=1.0, refusal=0.01, what="refused"):
    """So many in any second."""
    accepted = deque()

    def endpoint(now, serving):
        while accepted and accepted[0] <= now - 1.0:
            accepted.popleft()
        if len(accepted) >= rate:
            return what, refusal
        accepted.append(now)
        return "fine", seconds

    return endpoint


def spaced(rate, seconds=1.0, refusal=0.01, burst=1.0):
    """A bucket that fills with so many a second, and holds so many."""
    allowance, filled = burst, 0.0

    def endpoint(now, serving):
        nonlocal allowance, filled
        allowance, filled = min(burst, allowance + (now - filled) * rate), now
        if allowance < 1.0:
            return "refused", refusal
        allowance -= 1.0
        return "fine", seconds

    return endpoint


def told(rate, burst, seconds=1.0):
    """Such a bucket, whose headers tell what is left."""
    allowance, filled = burst, 0.0

    def endpoint(now, serving):
        nonlocal allowance, filled
        allowance, filled = min(burst, allowance + (now - filled) * rate), now
        is_taken = allowance >= 1.0
        allowance -= is_taken
        quota = Quota(burst, int(allowance), (burst - allowance) / rate)
        return ("fine", seconds, quota) if is_taken else ("refused", 0.01, quota)

    return endpoint


def by_chance(share, endpoint=None, seed=0, what="refused", refusal=0.01):
    """Fails such a share of all, however few are sent; the rest is another endpoint's."""
    dice, endpoint = random.Random(seed), endpoint or fine
    return lambda now, serving: (what, refusal) if dice.random() < share else endpoint(now, serving)


def stormy(endpoint, *storms, what="broken", seconds=0.01):
    """Fails everything between these moments."""

    def either(now, serving):
        return (what, seconds) if any(start <= now < end for start, end in storms) else endpoint(now, serving)

    return either


def fine(now, serving):
    return "fine", 1.0


def a_pace(ceiling=60, uniform=lambda: 0.5, **options):
    return Pace(ceiling, uniform=uniform, **options)


def sent(pace, count, now=0.0, before=0):
    return [pace.departed(now, before + place) for place in range(1, count + 1)]


def answered(pace, count=1, now=0.0, seconds=1.0):
    """So many leave at once, and get through."""
    for others, number in zip(range(count - 1, -1, -1), sent(pace, count, now), strict=True):
        pace.answered(number, now + seconds, others, seconds, TOKENS)
    return pace


def probe(pace, now, outcome="refused"):
    """Whoever may leave alone does, and lands at once; the time at which it did."""
    now += pace.wait(now, 0)
    number = pace.departed(now, 1)
    if outcome == "fine":
        pace.answered(number, now + 0.1, 0, 0.1, TOKENS)
    else:
        fail(pace, outcome, number, now, 0)
    return now


def fail(pace, outcome, number, now, others):
    """For want of room while more wait, or of another fault."""
    if outcome == "refused":
        pace.refused(number, now, others, True)
    else:
        pace.failed(number, now, others)


def flow(pace):
    """Requests a second that it lets go; infinity where they are not spaced."""
    spacing = pace.state.spacing(pace.window, pace.latency)
    return 1 / spacing if spacing else math.inf

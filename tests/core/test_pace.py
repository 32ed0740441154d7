"""The pace, told of departures and outcomes by hand or by an endpoint in virtual time: no sockets, no waiting."""

import heapq
import itertools
import math
import random
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore.http.pace import AUTO_CEILING, AUTO_START, HEALTHY, LONGEST_PAUSE, Learnt, Pace
from rewardcore.reply import Quota
from tests.core.test_engine_flights import steps

TOKENS = 100
#: A pause is jittered by half of it at most.
JITTER = 1.5


class World:
    """A client that always has more to send, and an endpoint: a function of the time and of how many it serves, that
    says of each arrival what becomes of it ("fine", "refused", "broken") and after how many seconds."""

    def __init__(self, pace, endpoint, tokens=lambda seconds: TOKENS):
        self.pace, self.endpoint, self.tokens = pace, endpoint, tokens
        self.now = 0.0
        self.serving = self.most = 0
        self.outcomes = []  # time, what, and the window after it
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
        what, seconds = self.endpoint(self.now, self.serving)
        self.serving += what == "fine"
        number = self.pace.departed(self.now, len(self._air) + 1)
        heapq.heappush(self._air, (self.now + seconds, number, what, seconds))
        self.most = max(self.most, len(self._air))

    def _land(self):
        self.now, number, what, seconds = heapq.heappop(self._air)
        others = len(self._air)
        if what == "fine":
            self.serving -= 1
            self.pace.answered(number, self.now, others, seconds, self.tokens(seconds))
        elif what == "refused":
            self.pace.refused(number, self.now, others, True)
        else:
            self.pace.failed(number, self.now, others, True)
        self.outcomes.append((self.now, what, self.pace.window))
        self._counts[what] += 1

    def count(self, what):
        return self._counts[what]

    def windows(self, start, end=math.inf):
        return [window for time, _, window in self.outcomes if start <= time < end]


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


def fine(now, serving):
    return "fine", 1.0


def a_pace(ceiling=60, uniform=lambda: 0.5, **options):
    return Pace(ceiling, uniform=uniform, **options)


def sent(pace, count, now=0.0, before=0):
    return [pace.departed(now, before + place) for place in range(1, count + 1)]


def probe(pace, now, outcome="refused"):
    """Whoever may leave alone does, and lands at once; the time at which it did."""
    now += pace.wait(now, 0)
    number = pace.departed(now, 1)
    if outcome == "fine":
        pace.answered(number, now + 0.1, 0, 0.1, TOKENS)
    else:
        getattr(pace, outcome)(number, now, 0, True)
    return now


# Whatever happens.


class Life:
    """Plays whatever comes, if need be before its time, and looks after every step."""

    def __init__(self, ceiling, finds, dice, obeys):
        self.pace = Pace(ceiling, finds=finds, uniform=dice.random)
        self.obeys = obeys
        self.now, self.air = 0.0, []

    def play(self, what, which, seconds):
        if what in ("send", "again"):
            wait = self.pace.wait(self.now, len(self.air))
            if wait == 0.0 or (not self.obeys and len(self.air) < self.pace.ceiling):
                self.air.append(self.pace.departed(self.now, len(self.air) + 1, what == "again"))
        elif what == "pass":
            self.now += seconds
        elif self.air:
            number = self.air.pop(which % len(self.air))
            self.land(what, number, seconds, pressed=which % 3 > 0)
        self.check()

    def land(self, what, number, seconds, pressed):
        pace, now, others = self.pace, self.now, len(self.air)
        if what == "fine":
            pace.answered(number, now, others, seconds, TOKENS)
        elif what == "no tokens":
            pace.answered(number, now, others, seconds)
        elif what == "no seconds":
            pace.answered(number, now, others)
        elif what == "quota":
            pace.answered(number, now, others, seconds, TOKENS, Quota(float(number % 3), seconds))
        elif what == "refused":
            pace.refused(number, now, others, pressed)
        elif what == "asked to wait":
            pace.refused(number, now, others, pressed, seconds)
        elif what == "failed":
            pace.failed(number, now, others, pressed)

    def check(self):
        pace = self.pace
        assert type(pace.window) is int
        assert 1 <= pace.window <= pace.ceiling
        assert pace.rate > 0.0
        assert 0.0 <= pace.health <= 1.0
        for in_flight in (0, 1, pace.window - 1, pace.window, len(self.air)):
            assert pace.wait(self.now, in_flight) >= 0.0  # which a NaN is not
        assert pace.wait(self.now, 0) < math.inf, "nobody waits for ever"
        assert type(pace.may_retry) is bool
        if (learnt := pace.learnt) is not None:
            assert learnt.window is None or 1 <= learnt.window <= pace.ceiling
            assert learnt.rate is None or learnt.rate > 0.0
            assert learnt.latency >= 0.0

    def recover(self):
        """Who is in the air lands well, and so does everybody from now on."""
        while self.air:
            self.play("fine", len(self.air) // 2, 1.0)
        world = World(self.pace, fine)
        world.now = self.now
        return world


ends = ["fine", "fine", "no tokens", "no seconds", "quota", "refused", "asked to wait", "failed", "gone"]
events = st.lists(
    st.tuples(
        st.sampled_from(["send"] * 6 + ["again", "pass"] + ends),
        st.integers(0, 1000),
        st.sampled_from([0.0, 1e-9, 0.001, 0.1, 1.0, 30.0, 1e6]),
    ),
    max_size=250,
)
lives = st.builds(
    Life,
    st.sampled_from([1, 2, 3, 8, 60, 1024]),
    st.booleans(),
    st.integers(0, 100).map(random.Random),
    st.booleans(),
)


@settings(max_examples=400)
@given(lives, events)
def test_whatever_happens_the_pace_is_within_its_bounds_and_nobody_waits_for_ever(life, events):
    for event in events:
        life.play(*event)


@settings(max_examples=150)
@given(lives, events)
def test_whatever_happened_the_window_is_at_its_ceiling_once_all_goes_well_for_long(life, events):
    for event in events:
        life.play(*event)
    pace = life.pace
    if pace._knee is None:
        world = life.recover().run(replies=40 * pace.ceiling + 2000)
        assert pace.window == pace.ceiling
        assert pace.rate >= 1.5 * pace.ceiling, "the window alone holds anybody back, at a second a reply"
        assert world.most == pace.ceiling


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from([1, 8, 60]), st.booleans())
def test_numbers_may_come_back_in_any_order_and_at_one_moment(seed, ceiling, finds):
    """A clock that stands still, replies that took no time, and thousands of failures."""
    dice = random.Random(seed)
    life = Life(ceiling, finds, dice, obeys=False)
    for what in ("failed", "refused", "fine"):
        for _ in range(300):
            life.play("send", 0, 0.0)
        for _ in range(300):
            life.play(what, dice.choice([0, -1, dice.randrange(300)]), 0.0)
    for _ in range(2000):
        life.play("send", 0, 0.0)
        life.play("failed", 0, 0.0)


# A cap.


@settings(max_examples=50)
@given(st.permutations(range(60)), st.integers(1, 59))
def test_a_cap_is_found_exactly_after_one_burst_whatever_the_order_of_the_refusals(order, cap):
    pace = a_pace()
    numbers = sent(pace, 60)
    for others, index in zip(range(59, cap - 1, -1), order, strict=False):
        pace.refused(numbers[index], 0.01, others, True)
    assert (pace.window, pace.rate) == (cap, math.inf)
    assert pace.wait(0.01, cap) == math.inf


@pytest.mark.parametrize("cap", [1, 2, 3, 10, 30, 59])
@pytest.mark.parametrize("seconds", [0.05, 1.0, 20.0])
def test_at_a_cap_as_many_are_in_the_air_as_it_bears_and_hardly_any_is_refused_after_the_first_burst(cap, seconds):
    world = World(a_pace(), at_once(cap, seconds)).run(replies=40 * cap)
    ideal = 40 * seconds
    assert world.now <= 1.2 * ideal
    assert world.count("refused") <= 60 - cap + 10 + 0.01 * world.count("fine")


@pytest.mark.parametrize("cap", [1, 3])
def test_replies_that_were_slow_once_do_not_hold_up_those_that_are_quick(cap):
    """The first ones waited until their worker processes, or the endpoint's model, were up."""
    pace = a_pace(6)
    for number in sent(pace, 6):
        pace.answered(number, 8.0, 0, 8.0, TOKENS)
    world = World(pace, at_once(cap, 0.06))
    world.now = 8.0
    world.run(replies=100)
    assert world.now - 8.0 <= 4 * 100 * 0.06 / cap


def test_one_place_more_is_tried_less_and_less_often_where_it_is_refused():
    world = World(a_pace(), at_once(10)).run(replies=2000)
    tries, between = [], 0
    for time, what, _ in world.outcomes:
        if what == "fine":
            between += 1
        elif time > 0.5:  # the first burst is over
            tries.append(between)
            between = 0
    assert len(tries) >= 8
    assert all(later >= 0.8 * earlier for earlier, later in itertools.pairwise(tries))
    assert tries[-1] >= 100
    assert set(world.windows(1.5)) <= {10, 11}


def test_as_soon_as_one_place_more_holds_growth_accelerates():
    world = World(a_pace(), at_once(10)).run(replies=1000)
    lifted, before = world.now, world.count("fine")
    world.endpoint = fine
    while world.pace.window < 60:
        world.run(replies=world.count("fine") + 1)
    steps_up = [
        after - before for before, after in itertools.pairwise([10, *world.windows(lifted)]) if before < after < 60
    ]
    assert steps_up[0] == 1
    assert steps_up == sorted(steps_up)
    assert world.count("fine") - before <= 128 + 4 * 60


def test_a_cap_that_becomes_lower_is_found_again():
    world = World(a_pace(), at_once(40)).run(replies=1000)
    world.endpoint = at_once(12)
    lowered, before = world.now, world.count("refused")
    world.run(until=lowered + 100.0)
    assert world.count("refused") - before <= 60
    assert sum(what == "fine" for time, what, _ in world.outcomes if time > lowered + 50.0) >= 0.7 * 12 * 50


# A cut.


def test_a_burst_of_refusals_is_one_cut():
    """A window goes to what is left in the air, not to a half of a half of it; a rate is slowed down once."""
    by_window, by_rate = a_pace(), a_pace(learnt=Learnt(60, 100.0, 0.5))
    for pace in (by_window, by_rate):
        numbers = sent(pace, 60)
        rates = []
        for others, number in enumerate(reversed(numbers[:20])):
            pace.refused(number, 0.01, 59 - others, True)
            rates.append(pace.rate)
        assert len(set(rates)) == 1
    assert by_window.window == 40
    assert 60.0 <= by_rate.rate < 100.0


def test_what_was_sent_before_a_cut_says_nothing_about_the_time_after_it():
    pace = a_pace(learnt=Learnt(60, 100.0, 0.5))
    old = sent(pace, 30)
    pace.refused(old[-1], 0.1, 29, True)
    rate = pace.rate
    (new,) = sent(pace, 1, 0.2, 29)
    pace.answered(new, 0.3, 29, 0.1, TOKENS)
    for others, number in zip(range(28, 9, -1), old, strict=False):
        pace.refused(number, 0.4, others, True)
    assert pace.rate == rate


def test_a_refusal_where_nothing_more_waits_does_not_say_how_many_are_borne():
    """At the end of a batch few are in the air because there are no more."""
    pace = a_pace()
    numbers = sent(pace, 3)
    pace.refused(numbers[0], 0.1, 2, pressed=False)
    assert pace.window == 60


def three_cuts(pace):
    """Of what was sent last, one after the other is refused, and nothing gets through."""
    numbers = sent(pace, 60)
    for others in (59, 58, 57):
        pace.refused(numbers[-1], 0.01, others, True)
        numbers += sent(pace, 1, 0.02, others)
    return numbers


def test_three_cuts_without_a_reply_between_them_halve_the_window():
    pace = a_pace()
    three_cuts(pace)
    assert pace.window == 57 // 2


def test_the_first_reply_to_what_left_after_three_silent_cuts_brings_everything_back():
    pace = a_pace()
    numbers = three_cuts(pace)
    pace.answered(numbers[0], 0.5, 57, 0.5, TOKENS)
    assert pace.window < 60, "it left before the cuts"
    pace.answered(numbers[-1], 1.0, 56, 0.5, TOKENS)
    assert (pace.window, pace.rate) == (60, math.inf)


# A rate.


@pytest.mark.parametrize("endpoint", [a_second, spaced])
@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0])
def test_where_it_is_refused_at_other_numbers_the_rate_settles_near_what_is_accepted(endpoint, seconds):
    ceiling = 200
    world = World(a_pace(ceiling, random.Random(0).random), endpoint(50, seconds)).run(replies=2000)
    settled = world.now
    refused = world.count("refused")
    world.run(replies=4000)
    borne = 2000 / (world.now - settled)
    assert 0.7 * 50 <= borne <= 51
    assert world.count("refused") - refused <= 0.1 * 2000


@pytest.mark.parametrize("seed", range(3))
def test_a_rate_never_falls_below_one_in_the_longest_pause_and_a_low_one_is_kept(seed):
    """So few a second that each is alone in the air when it is refused."""
    world = World(a_pace(uniform=random.Random(seed).random), spaced(10, 0.1)).run(until=300.0)
    assert world.pace.rate >= 1 / LONGEST_PAUSE
    assert world.count("fine") >= 0.5 * 10 * 300


LOW = [(1, 0.1), (5, 0.03), (5, 0.1), (10, 0.03)]


@pytest.mark.parametrize(("rate", "seconds"), LOW)
@pytest.mark.parametrize("endpoint", [a_second, spaced])
def test_at_a_low_rate_few_are_refused(endpoint, rate, seconds):
    world = World(a_pace(uniform=random.Random(0).random), endpoint(rate, seconds, 0.005)).run(replies=300)
    assert world.count("refused") <= 60 + 0.5 * 300


@pytest.mark.parametrize(("rate", "seconds"), LOW)
@pytest.mark.parametrize("endpoint", [a_second, spaced])
def test_a_low_rate_is_used(endpoint, rate, seconds):
    world = World(a_pace(uniform=random.Random(0).random), endpoint(rate, seconds, 0.005)).run(replies=300)
    assert world.now <= 1.7 * 300 / rate


@pytest.mark.parametrize("quota", [Quota(3.0, 10.0), Quota(0.0, 10.0)])
def test_a_quota_with_few_left_gives_its_rate(quota):
    pace = a_pace()
    number = sent(pace, 60)[0]
    pace.answered(number, 1.0, 59, 1.0, TOKENS, quota)
    assert pace.rate == pytest.approx(10.0)
    pace.departed(1.0, 60)
    assert pace.wait(1.0, 30) == pytest.approx(0.1)


def test_a_quota_with_many_left_changes_nothing():
    pace = a_pace()
    pace.answered(sent(pace, 60)[0], 1.0, 59, 1.0, TOKENS, Quota(60.0, 10.0))
    assert (pace.rate, pace.wait(1.0, 59)) == (math.inf, 0.0)


def test_a_quota_of_nothing_at_all_still_lets_one_go_now_and_then():
    pace = a_pace()
    pace.answered(sent(pace, 60)[0], 1.0, 59, 1.0, TOKENS, Quota(0.0, 0.0))
    pace.departed(1.0, 60)
    assert pace.wait(1.0, 30) <= LONGEST_PAUSE


def test_a_rate_that_is_lifted_is_left_behind():
    world = World(a_pace(), a_second(20, 0.5)).run(replies=600)
    world.endpoint = fine
    world.run(replies=2000)
    assert (world.pace.window, world.pace.rate) == (60, math.inf)


# Storms and outages.


@pytest.mark.parametrize("outcome", ["refused", "failed"])
@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
def test_where_nothing_is_in_the_air_probes_go_one_at_a_time_after_growing_jittered_pauses(outcome, draw, share):
    pace = a_pace(uniform=lambda: draw)
    numbers = sent(pace, 60)
    for others, number in enumerate(numbers):
        getattr(pace, outcome)(number, 0.01, 59 - others, True)
    now, pauses = 0.01, []
    for _ in range(12):
        pauses.append(pace.wait(now, 0))
        assert (pace.window, pace.wait(now, 1), pace.is_dry) == (1, math.inf, True)
        now = probe(pace, now, outcome)
    assert pauses[0] <= share
    for earlier, later in itertools.pairwise(pauses):
        assert later == pytest.approx(min(1.5 * earlier, share * LONGEST_PAUSE))
    assert pauses[-1] == pytest.approx(share * LONGEST_PAUSE)


def after_a_storm(pace, now=0.01):
    """All that is in the air is refused, then some probes; then one gets through."""
    numbers = sent(pace, pace.window, now)
    for others, number in enumerate(numbers):
        pace.refused(number, now, len(numbers) - 1 - others, True)
    for _ in range(5):
        now = probe(pace, now)
    return probe(pace, now, "fine") + 0.1


def test_with_the_first_reply_after_a_storm_window_and_rate_are_as_before():
    pace = a_pace()
    pace.answered(sent(pace, 1)[0], 1.0, 0, 1.0, TOKENS)
    now = after_a_storm(pace)
    assert (pace.window, pace.rate, pace.is_dry) == (60, math.inf, False)
    assert pace.wait(now, 0) == 0.0


def test_after_a_storm_departures_are_evenly_spaced():
    """Else all that waits falls upon an endpoint that has just come back."""
    pace = a_pace()
    pace.answered(sent(pace, 1)[0], 1.0, 0, 1.0, TOKENS)
    now = after_a_storm(pace)
    for in_flight in range(1, 30):
        pace.departed(now, in_flight)
        wait = pace.wait(now, in_flight)
        assert 0.0 < wait <= 1.0 / 60
        now += wait


def test_a_rate_is_slower_after_a_storm_but_not_by_much():
    pace = a_pace(learnt=Learnt(60, 100.0, 0.5))
    after_a_storm(pace)
    assert 50.0 <= pace.rate <= 100.0
    assert pace.window == 60


def test_two_failures_are_an_accident_and_three_in_a_row_are_a_cut():
    pace = a_pace()
    numbers = sent(pace, 60)
    for others, number in zip((59, 58), numbers, strict=False):
        pace.failed(number, 0.1, others, True)
    assert pace.window == 60
    pace.failed(numbers[2], 0.1, 57, True)
    assert pace.window == 57


def test_failures_of_what_left_before_the_last_reply_are_no_row():
    pace = a_pace()
    numbers = sent(pace, 60)
    pace.answered(numbers[-1], 0.1, 59, 0.1, TOKENS)
    for others, number in zip(range(58, -1, -1), numbers, strict=False):
        pace.failed(number, 0.2, others, True)
    assert pace.window == 60


def test_retry_after_with_nothing_in_the_air_holds_everybody():
    pace = a_pace()
    (number,) = sent(pace, 1)
    pace.refused(number, 1.0, 0, True, retry_after=42.0)
    assert 42.0 <= pace.wait(1.0, 0) <= 42.0 + 0.1 * JITTER * LONGEST_PAUSE


def test_retry_after_with_others_in_the_air_holds_nobody_else():
    pace = a_pace()
    numbers = sent(pace, 10)
    pace.refused(numbers[0], 1.0, 9, True, retry_after=42.0)
    pace.answered(numbers[1], 1.1, 8, 1.1, TOKENS)
    assert pace.wait(1.1, 8) < 1.0


# Retries.


def test_retries_are_free_in_health():
    pace = a_pace()
    for number in sent(pace, 100):
        pace.answered(number, 1.0, 0, 1.0, TOKENS)
    assert pace.health >= HEALTHY
    for _ in range(100):
        assert pace.may_retry
        pace.departed(1.0, 1, again=True)


def test_one_in_ten_departures_may_be_a_retry_in_trouble():
    pace = a_pace()
    retries = 0
    for count in range(1, 2001):
        again = pace.may_retry and count > 10
        retries += again
        pace.failed(pace.departed(0.0, 1, again), 0.0, 59, True)
        assert retries <= 0.1 * count + 1
    assert retries >= 0.09 * 2000


def test_retries_are_free_again_soon_after_trouble():
    pace = a_pace()
    for _ in range(100):
        pace.failed(pace.departed(0.0, 1), 0.0, 59, True)
    for _ in range(40):
        pace.answered(pace.departed(1.0, 1), 1.1, 59, 0.1, TOKENS)
    assert pace.may_retry


# What one judge leaves to the next.


def test_nothing_is_learnt_before_anything_was_heard():
    pace = a_pace()
    assert pace.learnt is None
    pace.failed(pace.departed(0.0, 1), 0.0, 0, True)
    assert pace.learnt is None


@pytest.mark.parametrize("endpoint", [at_once(10), a_second(20, 0.2), fine])
@pytest.mark.parametrize("finds", [False, True])
def test_what_was_learnt_is_where_the_next_pace_begins(endpoint, finds):
    learnt = World(a_pace(finds=finds), endpoint).run(replies=500).pace.learnt
    if learnt is None:
        assert not finds, "a fixed limit that was never met says nothing"
        return
    pace = a_pace(finds=finds, learnt=learnt)
    assert (pace.window, pace.rate) == (learnt.window or 60, learnt.rate or math.inf)
    assert pace.learnt == learnt
    assert Learnt.read(learnt.written()) == learnt


def test_what_is_learnt_in_a_storm_is_what_was_borne_before_it():
    pace = a_pace(finds=True)
    for number in sent(pace, 8):
        pace.answered(number, 1.0, 7, 1.0, TOKENS)
    before = pace.learnt
    for others, number in enumerate(sent(pace, before.window, 2.0)):
        pace.refused(number, 2.1, before.window - 1 - others, True)
    assert pace.window == 1
    assert pace.learnt == before


@pytest.mark.parametrize("learnt", [Learnt(10**9, None, 0.1), Learnt(None, 0.5, 0.1), Learnt(1, None, 30.0)])
def test_what_another_ceiling_has_learnt_is_kept_within_bounds(learnt):
    assert 1 <= a_pace(8, learnt=learnt).window <= 8


# Latency.


def test_a_fixed_limit_never_moves_for_latency():
    pace, now = a_pace(), 0.0
    for seconds in (0.001, 1.0, 0.1, 100.0, 0.0, 1e6):
        for number in sent(pace, 60, now):
            pace.answered(number, now + seconds, 59, seconds, 1)
            assert (pace.window, pace.rate, pace.wait(now, 59)) == (60, math.inf, 0.0)
        now += seconds


# In the dark: "auto" before anybody has answered.


def test_auto_starts_low_and_doubles_by_time_until_the_first_answers():
    pace = a_pace(AUTO_CEILING, finds=True)
    assert pace.window == AUTO_START == 8
    now, in_flight, seen = 0.0, 0, []
    while now < 0.8:
        if (wait := pace.wait(now, in_flight)) == 0.0:
            in_flight += 1
            pace.departed(now, in_flight)
        else:
            now += wait
            seen.append((now, in_flight))
    for time, count in seen:
        assert count == pytest.approx(8 * 2 ** (time / 0.15), rel=0.15, abs=1.5)
    assert seen[-1][1] > 256
    for number in range(1, 9):
        pace.answered(number, now, in_flight - number, now, TOKENS)
    assert pace.wait(now + 10.0, max(in_flight, pace.window)) == math.inf, "from here on, answers say more"


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_the_first_refusal_ends_the_dark_as_well(outcome):
    pace = a_pace(AUTO_CEILING, finds=True)
    numbers = sent(pace, 8)
    for number in numbers[:3]:
        getattr(pace, outcome)(number, 0.01, 5, True)
    assert pace.window <= 8
    assert pace.wait(100.0, pace.window) == math.inf


def test_in_the_dark_there_is_an_end_to_doubling():
    pace = a_pace(AUTO_CEILING, finds=True)
    in_flight = 0
    for now in range(1000):
        while pace.wait(float(now), in_flight) == 0.0:
            in_flight += 1
            pace.departed(float(now), in_flight)
    assert in_flight <= 512


# What it costs.

MANY = 100_000


def outage(pace, count):
    now = 0.0
    for _ in range(count):
        now = probe(pace, now)


def burst_of_refusals(pace, count):
    for place, number in enumerate(reversed(sent(pace, count))):
        pace.refused(number, 0.1, 1 + place % 60, True)


def mixed(pace, count):
    dice = random.Random(0)
    for _ in range(count):
        number = pace.departed(0.0, 30)
        dice.choice([pace.refused, pace.failed])(number, 0.0, 30, True)
        pace.answered(number, 0.0, 30, 0.1, TOKENS)


def failures_without_end(pace, count):
    for _ in range(count):
        pace.failed(pace.departed(0.0, 30), 0.0, 30, True)


HISTORIES = [outage, burst_of_refusals, mixed, failures_without_end]


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("finds", [False, True])
def test_an_event_costs_the_same_however_many_there_were(history, finds):
    costs = {}
    few, many = MANY // 80, MANY // 4
    for count in (few, many):
        pace = a_pace(finds=finds)
        costs[count] = steps(lambda pace=pace, count=count: history(pace, count)) / count
        last = pace.departed(1e9, 1)
        costs[count] += steps(lambda pace=pace, last=last: pace.answered(last, 1e9, 0, 1.0, TOKENS)) / count
    assert costs[many] <= 1.1 * costs[few]


def state(pace):
    return sum(len(value) for value in vars(pace).values() if hasattr(value, "__len__"))


@pytest.mark.parametrize(
    "history",
    [
        outage,
        burst_of_refusals,
        mixed,
        failures_without_end,
    ],
)
def test_nothing_is_kept_of_what_happened_long_ago(history):
    pace = a_pace()
    history(pace, MANY // 10)
    assert state(pace) <= 2 * 64

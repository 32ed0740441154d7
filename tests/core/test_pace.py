"""The pace, told of departures and outcomes by hand or by an endpoint in virtual time: its bounds, caps and costs.

Rates, storms, failures by chance and what it tells of itself are in the files beside this one.
"""

import itertools
import math
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore.http.pace import AUTO_CEILING, Pace
from rewardcore.http.pace.states import AUTO_START
from rewardcore.reply import Quota
from tests.core.pace_world import TOKENS, World, a_pace, a_second, answered, at_once, fail, fine, probe, sent
from tests.core.test_engine_flights import steps

# Whatever happens.


class Life:
    """Plays whatever comes, if need be before its time, and looks after every step."""

    def __init__(self, ceiling, finds, dice, obeys):
        self.pace = Pace(ceiling, finds=finds, uniform=dice.random)
        self.finds, self.obeys = finds, obeys
        self.now, self.air = 0.0, []

    def play(self, what, which, seconds):
        if what in ("send", "again"):
            wait = self.pace.wait(self.now, len(self.air))
            if wait == 0.0 or (not self.obeys and len(self.air) < self.pace.ceiling):
                self.air.append(self.pace.departed(self.now, len(self.air) + 1))
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
            pace.answered(number, now, others, seconds, TOKENS, quota(number, seconds))
        elif what == "refused, with a quota":
            pace.refused(number, now, others, pressed, None, quota(number, seconds)._replace(left=0, cost=0))
        elif what == "refused":
            pace.refused(number, now, others, pressed)
        elif what == "asked to wait":
            pace.refused(number, now, others, pressed, seconds)
        elif what == "failed":
            pace.failed(number, now, others)

    def check(self):
        pace = self.pace
        assert type(pace.window) is int
        assert 1 <= pace.window <= pace.ceiling
        for in_flight in (0, 1, pace.window - 1, pace.window, len(self.air)):
            assert pace.wait(self.now, in_flight) >= 0.0  # which a NaN is not
        assert pace.wait(self.now, 0) < math.inf, "nobody waits for ever"
        assert type(pace.may_retry) is bool
        assert type(pace.is_dry) is bool
        assert pace.last_good <= pace.sent
        assert len(pace.changes) <= 10

    def recover(self):
        """Who is in the air lands well, and so does everybody from now on."""
        while self.air:
            self.play("fine", len(self.air) // 2, 1.0)
        world = World(self.pace, fine)
        world.now = self.now
        return world


def quota(number, seconds):
    """Whatever a header may say: nothing left or all of it, back at once or in days, for one request or all that is."""
    limit = 1 + number % 97
    return Quota(limit, number % (limit + 1), seconds, number % 5)


ends = ["fine"] * 2 + [
    "no tokens",
    "no seconds",
    "quota",
    "refused, with a quota",
    "refused",
    "asked to wait",
    "failed",
    "gone",
]
events = st.lists(
    st.tuples(
        st.sampled_from(["send"] * 6 + ["again", "pass", "failed", "gone"] + ends),
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
    """But for a quota that its headers tell: that is the endpoint's to lift."""
    told = {"quota", "refused, with a quota"}
    for event in events:
        if event[0] not in told:
            life.play(*event)
    pace = life.pace
    if not life.finds:
        world = life.recover().run(replies=60 * pace.ceiling + 4000)
        assert pace.window == pace.ceiling
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
@given(st.data(), st.integers(1, 54))
def test_a_cap_is_found_exactly_after_one_burst_whatever_the_order_of_the_refusals(data, cap):
    pace = a_pace()
    refused = data.draw(st.permutations(sent(pace, 60)[cap:]))
    for others, number in zip(range(59, cap - 1, -1), refused, strict=True):
        pace.refused(number, 0.01, others, True)
    assert pace.window == cap
    assert pace.wait(0.01, cap) == math.inf


@pytest.mark.parametrize("cap", [1, 2, 3, 10, 30, 59])
@pytest.mark.parametrize("seconds", [0.05, 1.0, 20.0])
def test_at_a_cap_as_many_are_in_the_air_as_it_bears_and_hardly_any_is_refused_after_the_first_burst(cap, seconds):
    world = World(a_pace(), at_once(cap, seconds)).run(replies=40 * cap)
    ideal = 40 * seconds
    assert world.now <= 1.2 * ideal
    assert world.count("refused") <= 60 - cap + 10 + (0.05 if cap == 59 else 0.01) * world.count("fine")


@pytest.mark.parametrize("cap", [1, 3])
def test_replies_that_were_slow_once_do_not_hold_up_those_that_are_quick(cap):
    """The first ones waited until their worker processes, or the endpoint's model, were up."""
    pace = a_pace(6)
    for number in sent(pace, 6):
        pace.answered(number, 8.0, 0, 8.0, TOKENS)
    world = World(pace, at_once(cap, 0.06))
    world.now = 8.0
    world.run(replies=100)
    assert world.now - 8.0 <= {1: 8, 3: 4}[cap] * 100 * 0.06 / cap


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
    assert all(later >= 0.8 * earlier for earlier, later in itertools.pairwise(tries[1:]))
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
    assert world.count("fine") - before <= 256 + 4 * 60


def test_a_cap_that_becomes_lower_is_found_again():
    world = World(a_pace(), at_once(40)).run(replies=1000)
    world.endpoint = at_once(12)
    lowered, before = world.now, world.count("refused")
    world.run(until=lowered + 100.0)
    assert world.count("refused") - before <= 60
    assert sum(what == "fine" for time, what, _ in world.outcomes if time > lowered + 50.0) >= 0.7 * 12 * 50


def test_a_limit_that_is_lifted_is_left_behind():
    world = World(a_pace(), a_second(20, 0.5)).run(replies=600)
    world.endpoint = fine
    world.run(replies=2600)
    assert world.pace.window == 60


# A cut.


def test_a_burst_of_refusals_is_one_cut():
    """A window goes to what is left in the air, not to a half of a half of it."""
    pace = a_pace()
    for others, number in enumerate(reversed(sent(pace, 60)[40:])):
        pace.refused(number, 0.01, 59 - others, True)
    assert (pace.window, len(pace.changes)) == (40, 1)


def test_what_was_sent_before_a_cut_says_nothing_about_the_time_after_it():
    pace = a_pace()
    old = sent(pace, 60)
    for others, number in zip(range(59, 29, -1), reversed(old), strict=False):
        pace.refused(number, 0.1, others, True)
    assert pace.window == 30
    for number in old[:10]:
        pace.answered(number, 1.0, 29, 1.0, TOKENS)
    assert pace.window == 30, "no place is earned by them"


def test_a_refusal_where_nothing_more_waits_does_not_say_how_many_are_borne():
    """At the end of a batch few are in the air because there are no more."""
    pace = a_pace()
    numbers = sent(pace, 3)
    pace.refused(numbers[0], 0.1, 2, pressed=False)
    assert pace.window == 60


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_a_failure_here_and_there_cuts_nothing(outcome):
    """Others that left later got through."""
    pace = answered(a_pace(), 60)
    for now in range(1, 20):
        numbers = sent(pace, 60, now)
        fail(pace, outcome, numbers[30], now + 0.01, 59)
        for number in numbers[:30] + numbers[31:]:
            pace.answered(number, now + 0.9, 30, 0.9, TOKENS)
    assert (pace.window, list(pace.changes)) == (60, [])


@pytest.mark.parametrize(("failures", "wait"), [(11, 0.0), (12, math.inf)])
def test_failures_are_an_accident_until_there_are_twelve_in_a_row_and_then_nobody_takes_their_place(failures, wait):
    """Nothing is cut before it is known what they mean; one that gets through says that it was an accident."""
    pace = answered(a_pace(), 60)
    numbers = sent(pace, 60, 2.0)
    for number, others in zip(numbers[:failures], range(59, 0, -1), strict=False):
        pace.failed(number, 2.1, others)
    assert (pace.window, pace.wait(2.1, 60 - failures)) == (60, wait)
    pace.answered(numbers[-1], 2.2, 59 - failures, 1.0, TOKENS)
    assert (pace.window, pace.wait(2.2, 59 - failures)) == (60, 0.0)


def test_failures_of_what_left_before_the_last_reply_are_no_row():
    pace = a_pace()
    numbers = sent(pace, 60)
    pace.answered(numbers[-1], 0.1, 59, 0.1, TOKENS)
    for others, number in zip(range(58, -1, -1), numbers, strict=False):
        pace.failed(number, 0.2, others)
    assert pace.window == 60


def test_the_first_reply_to_what_left_after_an_outage_began_brings_everything_back():
    pace = answered(a_pace(), 60)
    old = sent(pace, 12, 1.0)[0]
    for number in sent(pace, 48, 1.0):
        pace.failed(number, 1.1, 12)
    assert pace.is_dry
    pace.answered(old, 2.0, 11, 1.0, TOKENS)
    assert pace.is_dry, "it left before"
    pace.answered(sent(pace, 1, 3.0)[0], 4.0, 11, 1.0, TOKENS)
    assert (pace.window, pace.is_dry) == (60, False)


@pytest.mark.parametrize("outcome", ["refused", "failed"])
@pytest.mark.parametrize("options", [{}, {"finds": True, "ceiling": AUTO_CEILING}], ids=["limit", "auto"])
@pytest.mark.parametrize("seconds", [0.01, 1.0])
def test_who_has_never_answered_is_met_by_few_requests(outcome, options, seconds):
    """However many are in the air one beside the other, so that it is never quiet."""
    what, arrivals = {"refused": "refused", "failed": "broken"}[outcome], itertools.count(1)

    def endpoint(now, serving):
        assert next(arrivals) <= 1000, f"after {now:.2f} s: {world.pace.told}"
        return what, seconds

    world = World(a_pace(uniform=random.Random(0).random, **options), endpoint)
    world.run(until=60.0)


# Latency.


def test_a_fixed_limit_never_moves_for_latency():
    pace, now = a_pace(), 0.0
    for seconds in (0.001, 1.0, 0.1, 100.0, 0.0, 1e6):
        for number in sent(pace, 60, now):
            pace.answered(number, now + seconds, 59, seconds, 1)
            assert (pace.window, pace.wait(now, 59)) == (60, 0.0)
        now += seconds


# In the dark: "auto" before anybody has answered.


def test_auto_starts_low_and_doubles_by_time_until_the_first_answers():
    pace = a_pace(AUTO_CEILING, finds=True)
    assert pace.window == AUTO_START == 8
    now, in_flight, seen = 0.0, 0, []
    while now < 0.7:
        if (wait := pace.wait(now, in_flight)) == 0.0:
            in_flight += 1
            pace.departed(now, in_flight)
        else:
            now += wait
            seen.append((now, in_flight))
    for time, count in seen:
        assert count == pytest.approx(8 * 2 ** (time / 0.12), rel=0.15, abs=1.5)
    assert seen[-1][1] > 256
    for number in range(1, 9):
        pace.answered(number, now, in_flight - number, now, TOKENS)
    assert pace.wait(now + 10.0, max(in_flight, pace.window)) == math.inf, "from here on, answers say more"


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_a_row_of_failures_ends_the_dark_as_well(outcome):
    pace = a_pace(AUTO_CEILING, finds=True)
    for number, others in zip(sent(pace, 8), range(7, -1, -1), strict=True):
        fail(pace, outcome, number, 0.01, others)
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
        fail(pace, dice.choice(["refused", "failed"]), number, 0.0, 30)
        pace.answered(number, 0.0, 30, 0.1, TOKENS)


def failures_without_end(pace, count):
    for _ in range(count):
        pace.failed(pace.departed(0.0, 30), 0.0, 30)


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


def kept(thing, seen=None):
    """How many things it holds on to, in all its parts."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (int, float, str, type, type(None))) or callable(thing):
        return 0
    seen.add(id(thing))
    if isinstance(thing, (list, tuple, set, dict, deque)):
        return len(thing) + sum(kept(part, seen) for part in thing)
    names = [*getattr(thing, "__dict__", {}), *getattr(type(thing), "__slots__", ())]
    return sum(kept(getattr(thing, name, None), seen) for name in names)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("finds", [False, True])
def test_nothing_is_kept_of_what_happened_long_ago(history, finds):
    pace = a_pace(finds=finds)
    history(pace, MANY // 10)
    assert kept(pace) <= 64 + 16 + 10 * 5 + 10

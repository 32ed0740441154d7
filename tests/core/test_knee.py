"""How "auto" finds where more at once brings no more: the knee by hand, and a pace with one in virtual time."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore.http.pace import AUTO_CEILING, Pace
from rewardcore.http.pace.knee import Knee
from rewardcore.http.pace.states import AUTO_START
from tests.core.pace_world import TOKENS, World, at_once
from tests.core.test_engine_flights import steps


def queueing(slots, seconds=1.0, seed=0, spread=0.1):
    """Serves so many at once, and lets the others wait for their turn."""
    dice = random.Random(seed)
    free = [0.0] * slots

    def endpoint(now, serving):
        starts = max(now, heapq.heappop(free))
        ends = starts + seconds * dice.uniform(1 - spread, 1 + spread)
        heapq.heappush(free, ends)
        return "fine", ends - now

    return endpoint


def roomy(seconds=1.0, seed=0, spread=0.1):
    dice = random.Random(seed)
    return lambda now, serving: ("fine", seconds * dice.uniform(1 - spread, 1 + spread))


def auto(endpoint, **options):
    return World(Pace(AUTO_CEILING, finds=True, uniform=lambda: 0.5), endpoint, **options)


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("seconds", [0.2, 1.0, 10.0])
def test_auto_grows_to_its_ceiling_where_more_always_brings_more(seed, seconds):
    world = auto(roomy(seconds, seed)).run(replies=20_000)
    assert world.pace.window == AUTO_CEILING


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("seconds", [0.05, 1.0, 5.0])
def test_auto_backs_off_where_half_as_many_bring_as_much(seed, seconds):
    """40 are served at once, and whoever comes on top of them waits: nothing is ever refused."""
    world = auto(queueing(40, seconds, seed)).run(until=100 * seconds)
    assert 36 <= mean(world.windows(50 * seconds)) <= 14 * 40


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_auto_stays_where_half_as_many_bring_as_much(seed, seconds):
    world = auto(queueing(40, seconds, seed)).run(until=500 * seconds)
    settled = world.windows(100 * seconds)
    assert mean(settled) >= 36, "now and then fewer are tried"
    assert max(settled) <= 16 * 40


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("seconds", [0.05, 1.0, 5.0])
def test_auto_keeps_an_endpoint_busy_that_lets_the_others_wait(seed, seconds):
    world = auto(queueing(40, seconds, seed)).run(until=500 * seconds)
    assert world.count("fine") >= 0.95 * 40 * 500


@pytest.mark.parametrize("seed", range(3))
def test_auto_grows_back_when_the_endpoint_gets_faster(seed):
    world = auto(queueing(40, seed=seed)).run(until=200.0)
    world.endpoint = queueing(400, seed=seed)
    world.run(until=1200.0)
    served = sum(time >= 1100.0 for time, _, _ in world.outcomes)
    assert served >= 0.7 * 400 * 100


@pytest.mark.parametrize("seed", range(3))
def test_an_endpoint_that_becomes_slow_for_reasons_of_its_own_is_not_given_up(seed):
    """Six times slower at any load: half as many bring half as much."""
    world = auto(roomy(1.0, seed)).run(replies=20_000)
    slowed = world.now
    world.endpoint = roomy(6.0, seed)
    world.run(until=slowed + 1200.0)
    assert mean(world.windows(slowed + 600.0)) >= 0.6 * AUTO_CEILING


@pytest.mark.parametrize("seed", range(3))
def test_a_few_long_replies_are_not_taken_for_load(seed):
    """One in twenty says ten times as much and takes ten times as long."""
    dice = random.Random(seed)

    def endpoint(now, serving):
        return "fine", (10 if dice.random() < 0.05 else 1) * dice.uniform(0.9, 1.1)

    world = auto(endpoint, tokens=lambda seconds: round(TOKENS * seconds)).run(replies=20_000)
    assert world.pace.window >= AUTO_CEILING // 2


def test_one_long_first_reply_does_not_make_the_others_quick():
    """The first to come back says nothing about how many are too many."""
    first = iter([0.01])
    world = auto(lambda now, serving: ("fine", next(first, 1.0))).run(replies=20_000)
    assert world.pace.window == AUTO_CEILING


@pytest.mark.parametrize("cap", [10, 80, 300])
def test_auto_finds_a_cap_that_is_refused(cap):
    world = auto(at_once(cap)).run(until=300.0)
    assert 0.7 * cap <= world.pace.window <= 1.1 * cap
    assert world.count("refused") <= 0.05 * world.count("fine") + 512


def test_places_that_nobody_uses_earn_no_more():
    """500 replies, one at a time, are no reason to let 500 go at once."""
    pace, now = Pace(AUTO_CEILING, finds=True), 0.0
    for _ in range(500):
        pace.answered(pace.departed(now, 1), now + 1.0, 0, 1.0, TOKENS)
        now += 1.0
    assert pace.window <= 2 * AUTO_START


# By hand.


class Rounds:
    """Full windows, one after the other: all of one leave, then all of it land."""

    def __init__(self, knee):
        self.knee, self.sent = knee, 0

    def cohort(self, window, seconds, tokens=TOKENS):
        """Whole windows until the knee has judged one; what it says."""
        for _ in range(100):
            first, self.sent = self.sent + 1, self.sent + window
            for place in range(window):
                self.knee.departed(first + place, window, window)
            choices = [self.knee.landed(first + place, seconds, tokens, window, window) for place in range(window)]
            if not self.knee._end:
                return next((choice for choice in choices if choice is not None), None)
        raise AssertionError("a cohort comes to an end")


@pytest.fixture
def rounds():
    return Rounds(Knee())


def test_quick_cohorts_change_nothing_and_allow_more(rounds):
    for window in (8, 16, 32, 64, 128):
        assert rounds.cohort(window, 1.0) is None
        assert not rounds.knee.is_slow


def test_a_slow_cohort_is_suspected_and_half_as_many_are_tried(rounds):
    rounds.cohort(64, 1.0)
    assert rounds.cohort(128, 2.0) == 64
    assert rounds.knee.is_slow


def test_what_brings_as_much_stays_halved(rounds):
    rounds.cohort(64, 1.0)
    assert rounds.cohort(256, 4.0) == 128
    assert rounds.cohort(128, 2.0) == 64, "as much, and still slow: half of that is tried"
    assert rounds.cohort(64, 1.0) is None, "as much again, and quick"


def test_what_brings_less_is_taken_back_and_slow_replies_are_worth_it_then(rounds):
    rounds.cohort(64, 1.0)
    assert rounds.cohort(128, 6.0) == 64
    assert rounds.cohort(64, 6.0) == 128, "half of it, at the same pace"
    assert rounds.cohort(128, 6.0) is None
    assert not rounds.knee.is_slow, "more places may be tried"


def test_a_window_that_was_right_is_tried_again_only_where_replies_are_slower_still(rounds):
    rounds.cohort(32, 1.0)
    assert rounds.cohort(128, 6.0) == 64
    assert rounds.cohort(64, 6.0) == 128, "taken back"
    assert {rounds.cohort(128, 6.0 + tenths / 10) for tenths in range(30)} == {None}
    assert rounds.cohort(128, 9.1) == 64


def test_replies_that_count_no_tokens_are_judged_by_their_time(rounds):
    rounds.cohort(64, 1.0, tokens=None)
    assert rounds.cohort(128, 2.0, tokens=None) == 64


def test_replies_of_other_cohorts_are_no_evidence(rounds):
    knee = rounds.knee
    knee._begin(1001, 64)
    for number in [*range(1, 1001), *range(5000, 6000)]:
        assert knee.landed(number, 100.0, 1, 64, 64) is None
    assert not knee.is_slow


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 2000),
            st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1e6]),
            st.sampled_from([None, 0, 1, 10**6]),
            st.integers(0, 600),
            st.integers(1, 1024),
        ),
        max_size=400,
    )
)
def test_whatever_comes_back_the_choice_is_a_number_of_places(replies):
    knee = Knee()
    for sent, (number, seconds, tokens, in_flight, window) in enumerate(replies, 1):
        knee.departed(sent, in_flight, window)
        choice = knee.landed(min(number, sent), seconds, tokens, in_flight, window)
        assert choice is None or (type(choice) is int and choice >= 1)
        assert type(knee.is_slow) is bool


def test_a_reply_costs_the_same_however_many_there_were():
    costs = {}
    for count in (5_000, 100_000):
        knee = Knee()

        def run(knee=knee, count=count):
            for number in range(1, count + 1):
                knee.departed(number, 60, 60)
                knee.landed(number, 1.0, TOKENS, 60, 60)

        costs[count] = steps(run) / count
    assert costs[100_000] <= 1.1 * costs[5_000]

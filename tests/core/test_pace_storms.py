"""The pace where nothing gets through: probes that go ever less often, full speed after, and few retries meanwhile."""

import itertools
import math
import random

import pytest

from rewardcore.http.pace.states import LONGEST_PAUSE
from tests.core.pace_world import TOKENS, World, a_pace, answered, fail, probe, sent


@pytest.mark.parametrize("outcome", ["refused", "failed"])
@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
def test_where_nothing_is_in_the_air_probes_go_one_at_a_time_after_growing_jittered_pauses(outcome, draw, share):
    pace = a_pace(uniform=lambda: draw)
    for others, number in enumerate(sent(pace, 60)):
        fail(pace, outcome, number, 0.01, 59 - others)
    now, pauses = 0.01, []
    while not pace.is_dry:
        now = probe(pace, now, outcome)
    for _ in range(30):
        pauses.append(pace.wait(now, 0))
        assert (pace.window, pace.wait(now, 1), pace.is_dry) == (1, math.inf, True)
        now = probe(pace, now, outcome)
    assert pauses[0] <= 1.3 * share
    for earlier, later in itertools.pairwise(pauses):
        assert later == pytest.approx(min(1.3 * earlier, share * LONGEST_PAUSE))
    assert pauses[-1] == pytest.approx(share * LONGEST_PAUSE)


def after_a_storm(pace, now=2.0):
    """All that is in the air is refused, then some probes; then one gets through."""
    numbers = sent(pace, pace.window, now)
    for others, number in enumerate(numbers):
        pace.refused(number, now, len(numbers) - 1 - others, True)
    for _ in range(5):
        now = probe(pace, now)
    return probe(pace, now, "fine") + 0.1


def test_with_the_first_reply_after_a_storm_the_window_is_as_before():
    pace = answered(a_pace(), 60)
    now = after_a_storm(pace)
    assert (pace.window, pace.is_dry) == (60, False)
    assert pace.wait(now, 0) == 0.0


def test_after_a_storm_departures_are_evenly_spaced():
    """Else all that waits falls upon an endpoint that has just come back."""
    pace = answered(a_pace(), 60)
    now = after_a_storm(pace)
    for in_flight in range(1, 30):
        pace.departed(now, in_flight)
        wait = pace.wait(now, in_flight)
        assert 0.0 < wait <= 1.0 / 60
        now += wait


@pytest.mark.parametrize("what", ["broken", "refused"])
def test_what_was_sent_before_an_outage_does_not_end_it(what):
    pace = answered(a_pace(2), 2)
    (old,) = sent(pace, 1, 2.0)
    for now in (2.1, 2.2, 2.3, 2.4, 2.5, 2.6):
        (number,) = sent(pace, 1, now)
        fail(pace, what, number, now, 1)
    for now in (2.7, 2.8, 2.9, 3.0):
        (number,) = sent(pace, 1, now)
        fail(pace, what, number, now, 0)
    assert pace.is_dry
    pace.answered(old, 3.1, 0, 1.1, TOKENS)
    assert pace.is_dry


def test_retry_after_with_nothing_in_the_air_holds_everybody():
    pace = a_pace()
    (number,) = sent(pace, 1)
    pace.refused(number, 1.0, 0, True, retry_after=42.0)
    assert 42.0 <= pace.wait(1.0, 0) <= 42.0 + 0.1 * LONGEST_PAUSE


def test_retry_after_with_others_in_the_air_holds_nobody_else():
    pace = a_pace()
    numbers = sent(pace, 10)
    pace.refused(numbers[0], 1.0, 9, True, retry_after=42.0)
    pace.answered(numbers[1], 1.1, 8, 1.1, TOKENS)
    assert pace.wait(1.1, 8) < 1.0


# Retries.


def test_retries_are_free_while_something_gets_through():
    pace = answered(a_pace(), 100)
    for _ in range(100):
        assert pace.may_retry
        pace.departed(1.0, 1)


@pytest.mark.parametrize("what", ["failed", "refused"])
@pytest.mark.parametrize("places", [60, 200])
@pytest.mark.parametrize(("least", "most"), [(0.01, 0.02), (0.1, 1.0), (0.5, 2.0), (2.0, 5.0)])
def test_an_outage_whose_errors_take_their_time_is_met_with_few_requests(what, places, least, most):
    """They come in any order, and while they are on their way others may leave."""
    dice = random.Random(1)

    def endpoint(now, serving):
        return (what, dice.uniform(least, most)) if 20.0 <= now < 40.0 else ("fine", 1.0)

    world = World(a_pace(places), endpoint).run(until=60.0)
    assert world.count(what) <= 2 * places + 60
    assert world.count("fine") >= 0.95 * 35 * places, "and soon it goes on as before"


def dry(pace):
    """Nothing gets through, and nothing is in the air."""
    for others, number in enumerate(reversed(sent(pace, 8))):
        pace.failed(number, 0.0, 7 - others)
    assert pace.is_dry
    return pace


def test_one_in_ten_departures_may_be_a_retry_in_an_outage():
    pace, retries = dry(a_pace()), 0
    for count in range(1, 2001):
        again = pace.may_retry
        retries += again
        pace.failed(pace.departed(0.0, 1), 0.0, 0)
        assert retries <= 0.1 * count + 1
    assert retries >= 0.09 * 2000


def test_retries_are_free_again_after_it():
    pace = dry(a_pace())
    for _ in range(100):
        pace.failed(pace.departed(0.0, 1), 0.0, 0)
    pace.answered(pace.departed(1.0, 1), 1.1, 0, 0.1, TOKENS)
    assert pace.may_retry

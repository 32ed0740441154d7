"""The pace where an endpoint bears so many a second: a rate that is found, one that headers tell, and its end."""

import random

import pytest

from rewardcore.http.pace.states import LONGEST_PAUSE
from rewardcore.reply import Quota
from tests.core.pace_world import TOKENS, World, a_pace, a_second, answered, fine, flow, probe, sent, spaced, told


def drawn(ceiling=60, seed=0):
    return a_pace(ceiling, random.Random(seed).random)


@pytest.mark.parametrize("endpoint", [a_second, spaced])
@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0])
def test_where_it_is_refused_at_other_numbers_the_rate_settles_near_what_is_accepted(endpoint, seconds):
    world = World(drawn(200), endpoint(50, seconds)).run(replies=2000)
    settled, refused = world.now, world.count("refused")
    world.run(replies=4000)
    borne = 2000 / (world.now - settled)
    assert 0.65 * 50 <= borne <= 51
    assert world.count("refused") - refused <= 0.25 * 2000


@pytest.mark.parametrize("seed", range(3))
def test_a_rate_never_falls_below_one_in_the_longest_pause_and_a_low_one_is_kept(seed):
    """So few a second that each is alone in the air when it is refused."""
    world = World(drawn(seed=seed), spaced(10, 0.1)).run(until=300.0)
    assert flow(world.pace) >= 1 / LONGEST_PAUSE
    assert world.count("fine") >= 0.5 * 10 * 300


LOW = [(1, 0.1), (5, 0.03), (5, 0.1), (10, 0.03)]


@pytest.mark.parametrize(("rate", "seconds"), LOW)
@pytest.mark.parametrize("endpoint", [a_second, spaced])
def test_at_a_low_rate_few_are_refused(endpoint, rate, seconds):
    world = World(drawn(), endpoint(rate, seconds, 0.005)).run(replies=300)
    assert world.count("refused") <= 60 + (4 if (rate, endpoint) == (10, spaced) else 0.5) * 300


@pytest.mark.parametrize(("rate", "seconds"), LOW)
@pytest.mark.parametrize("endpoint", [a_second, spaced])
def test_a_low_rate_is_used(endpoint, rate, seconds):
    world = World(drawn(), endpoint(rate, seconds, 0.005)).run(replies=300)
    assert world.now <= 1.7 * 300 / rate


def test_a_rate_that_is_lifted_is_left_behind():
    world = World(drawn(200), spaced(50)).run(replies=2000)
    assert world.pace.window < 200
    world.endpoint = fine
    world.run(replies=8000)
    assert world.pace.window == 200


def test_a_rate_is_kept_over_a_storm_but_for_a_little():
    world = World(drawn(200), spaced(50)).run(replies=2000)
    pace, now, before = world.pace, world.now, world.pace.window
    for others in range(59, -1, -1):
        pace.refused(pace.departed(now, others + 1), now, others, True)
    while not pace.is_dry:
        now = probe(pace, now)
    probe(pace, now, "fine")
    assert 0.5 * before <= pace.window <= before


# Headers that tell a bucket: what is used is back as it refills.


def test_a_bucket_that_is_told_gives_its_rate_before_many_are_refused():
    world = World(a_pace(), told(20, 50)).run(replies=300)
    assert world.count("refused") <= 0.07 * 300
    assert world.now <= 1.1 * 250 / 20 + 1.0


def test_a_bucket_with_more_left_than_is_asked_for_changes_nothing():
    world = World(a_pace(), told(100, 5000)).run(replies=1000)
    assert list(world.pace.changes) == []


def test_a_quota_of_nothing_at_all_still_lets_one_go_now_and_then():
    pace = a_pace()
    for number in sent(pace, 60):
        pace.answered(number, 1.0, 59, 1.0, TOKENS, Quota(1.0, 0.0, 0.0))
    pace.departed(1.0, 1)
    assert pace.wait(1.0, 1) <= LONGEST_PAUSE


# Headers that tell a window: all is back at one moment.


def window_told(pace, limit, reset, now=0.0):
    """All of it is used one after the other, and the moment at which it is back stays where it is."""
    for used in range(1, limit + 1):
        at = now + used / 100
        number = pace.departed(at, 1)
        pace.answered(number, at, 0, 0.005, TOKENS, Quota(limit, limit - used, now + reset - at))
    return now + limit / 100


def test_where_a_window_is_used_up_the_next_leaves_when_it_is_back():
    pace = a_pace()
    now = window_told(pace, 50, 2.0)
    assert pace.wait(now, 0) == pytest.approx(2.0 - now, abs=0.05)
    assert pace.wait(2.1, 0) == 0.0


def test_a_refusal_with_a_windows_headers_cuts_nothing():
    pace = a_pace()
    now = window_told(pace, 50, 2.0)
    for others, number in zip(range(29, -1, -1), sent(pace, 30, now), strict=True):
        pace.refused(number, now, others, True, None, Quota(50, 0, 2.0 - now, 0))
    assert (pace.window, pace.is_dry) == (60, False)
    assert pace.wait(2.1, 0) == 0.0


def test_a_window_that_nobody_uses_up_holds_nobody():
    pace = answered(a_pace(), 60)
    now = window_told(pace, 20, 2.0)
    for start in (10.0, 20.0):
        assert pace.wait(start, 0) == 0.0
        now = window_told(pace, 10, 2.0, start)
        assert pace.wait(now, 0) < 2.0
    assert list(pace.changes) == []

"""Failures by chance: what is scattered cuts nothing, and a cut that does not help is taken back."""

import random
from functools import partial

import pytest

from tests.core.pace_world import TOKENS, World, a_pace, answered, at_once, by_chance, fine, sent, spaced


def drawn(ceiling=60, **options):
    return a_pace(ceiling, random.Random(0).random, **options)


def kinds(world):
    return [(change.state, change.reason) for change in world.ways.seen]


SHARES = [0.02, 0.1, 0.3]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("what", ["refused", "broken"])
def test_where_some_fail_by_chance_it_is_nearly_as_fast_as_where_none_do(share, what):
    worlds = [World(drawn(), by_chance(share, fine, seed, what)).run(replies=6000) for seed in range(5)]
    assert sum(world.now for world in worlds) <= 1.2 * 5 * 6000 / 60
    assert {world.pace.window for world in worlds} == {60}


@pytest.mark.parametrize("seed", range(3))
def test_chance_is_known_by_a_trial_that_does_not_help_and_is_taken_back(seed):
    world = World(drawn(), by_chance(0.1, fine, seed)).run(replies=1000)
    states, reasons = zip(*kinds(world), strict=True)
    assert set(states) == {"window"}
    assert "are half as many?" in reasons[0]
    assert "that is chance, and overlooked" in reasons[-1]
    assert 20 <= min(world.windows(0.0)) <= 30, "half of what is in the air is tried"
    assert world.pace.window == 60


def test_a_500_is_no_sign_of_the_pace_and_needs_no_trial():
    world = World(drawn(), by_chance(0.3, fine, what="broken")).run(replies=3000)
    assert kinds(world) == []


@pytest.mark.parametrize("share", SHARES)
def test_chance_that_begins_late_and_goes_again_leaves_nothing_behind(share):
    world = World(drawn(), fine).run(replies=600)
    world.endpoint = by_chance(share)
    world.run(replies=4000)
    world.endpoint = fine
    ended = world.now
    world.run(replies=5000)
    assert world.now - ended <= 1.1 * 1000 / 60
    assert world.pace.window == 60


def test_a_limit_that_begins_beside_chance_is_found():
    """Far more is refused than by chance: that is no chance any more."""
    world = World(drawn(), by_chance(0.1)).run(replies=2000)
    world.endpoint = by_chance(0.1, at_once(20))
    met, refused = world.now, world.count("refused")
    world.run(until=met + 60.0)
    fine_then = sum(what == "fine" for time, what, _ in world.outcomes if time > met)
    assert fine_then >= 0.4 * 20 * 60
    assert world.count("refused") - refused <= fine_then


def test_a_storm_beside_chance_is_a_storm():
    world = World(drawn(), by_chance(0.1)).run(replies=2000)
    world.endpoint = by_chance(1.0)
    began, before = world.now, world.count("refused")
    world.run(until=began + 30.0)
    assert world.pace.is_dry
    assert world.count("refused") - before <= 150


@pytest.mark.parametrize("endpoint", [partial(at_once, 30), partial(spaced, 30)], ids=["cap", "bucket"])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_chance_beside_a_limit_is_not_asked_ever_more_slowly(endpoint, share):
    world = World(drawn(), by_chance(share, endpoint())).run(replies=3000)
    first = world.now
    world.run(replies=6000)
    assert world.now - first <= 1.25 * first, "it does not get slower"
    assert world.now <= 5 * 6000 / (30 * (1 - share))


# Two by accident.


@pytest.mark.parametrize("second", ["a straggler", "at once"])
def test_two_stray_503s_leave_no_slow_pace_behind(second):
    """Also where the second lands when nothing else is in the air, as the last of a batch does."""
    pace = answered(a_pace(), 60)
    numbers = sent(pace, 60, 2.0)
    pace.refused(numbers[20], 2.1, 59, True)
    for others, number in zip(range(58, 0, -1), numbers[:20] + numbers[21:59], strict=True):
        pace.answered(number, 3.0, others, 1.0, TOKENS)
    if second == "a straggler":
        pace.refused(numbers[59], 9.0, 0, False)
        again = pace.departed(9.1, 1)
        pace.answered(again, 10.1, 0, 1.0, TOKENS)
    else:
        pace.refused(numbers[59], 3.0, 0, False)
    assert (pace.window, pace.is_dry, list(pace.changes)) == (60, False, [])
    now = 20.0
    assert [pace.wait(now, in_flight) for in_flight in range(60) if pace.departed(now, in_flight + 1)] == [0.0] * 60


def test_a_few_stragglers_that_fail_alone_at_the_end_of_a_batch_are_no_outage():
    """Three retries of the last sample fail too."""
    pace = answered(a_pace(), 60)
    now = 5.0
    for _ in range(3):
        pace.refused(pace.departed(now, 1), now + 0.5, 0, False)
        now += 1.0
    assert (pace.window, pace.is_dry) == (60, False)
    pace.answered(pace.departed(now, 1), now + 1.0, 0, 1.0, TOKENS)
    assert (pace.window, list(pace.changes)) == (60, [])

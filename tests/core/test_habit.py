"""Refusals that no slowness cures: when they are taken for a habit, what is then excused, and when it was none."""

from __future__ import annotations

import math
import random

import pytest

from rewardcore.http.habit import Habit, Standing


def standing(pace: float) -> Standing:
    return Standing(60, pace, pace)


def asked(habit: Habit, pace: float, outcomes: list[bool], first: int) -> Standing | None:
    """So many departures at that pace, of which the True ones are refused; what was to be had again, if anything."""
    for number, is_refused in enumerate(outcomes, first):
        habit.departed(number, standing(pace), 10)
        if is_refused and not habit.excuses(number):
            borne = habit.refused(number, standing(pace), 10, number)
            if borne is not None:
                return borne
    return None


def one_in(many: int, times: int) -> list[bool]:
    return [place % many == many - 1 for place in range(many * times)]


@pytest.mark.parametrize("many", [3, 5, 10, 20])
def test_as_many_at_half_the_pace_are_a_habit_and_the_pace_is_had_again(many: int) -> None:
    habit = Habit()
    assert asked(habit, 100.0, one_in(many, 6), 1) is None
    borne = asked(habit, 40.0, one_in(many, 6), 1000)
    assert borne is not None
    assert borne.pace == 100.0
    assert habit.share == pytest.approx(1 / many, rel=0.5)


def test_fewer_at_half_the_pace_are_a_limit() -> None:
    habit = Habit()
    assert asked(habit, 100.0, one_in(2, 20), 1) is None
    assert asked(habit, 40.0, one_in(20, 10), 1000) is None
    assert habit.share == 0.0


def test_more_than_half_refused_is_no_habit() -> None:
    habit = Habit()
    outcomes = [place % 3 > 0 for place in range(60)]
    assert asked(habit, 100.0, outcomes, 1) is None
    assert asked(habit, 40.0, outcomes, 1000) is None


def test_a_pace_that_was_hardly_cut_tells_nothing() -> None:
    habit = Habit()
    assert asked(habit, 100.0, one_in(10, 10), 1) is None
    assert asked(habit, 63.0, one_in(10, 10), 1000) is None


def test_a_habits_refusals_are_excused_in_whatever_order_they_come() -> None:
    habit, draw = Habit(), random.Random(7)
    asked(habit, 100.0, one_in(10, 10), 1)
    assert asked(habit, 20.0, one_in(10, 10), 1000) is not None
    refused = 0
    for number in range(2000, 7000):
        habit.departed(number, standing(100.0), 60)
        if draw.random() < 0.1:
            refused += not habit.excuses(number)
    assert refused <= 5
    assert habit.share == pytest.approx(0.1, abs=0.03)


def test_twice_as_many_were_no_habit_and_the_next_time_a_deeper_cut_must_tell() -> None:
    habit = Habit()
    asked(habit, 100.0, one_in(10, 10), 1)
    assert asked(habit, 40.0, one_in(10, 10), 101) is not None
    asked(habit, 100.0, one_in(2, 30), habit._learnt_at + 1)
    assert habit.share == 0.0
    assert asked(habit, 40.0, one_in(3, 10), 3000) is None
    assert asked(habit, 10.0, one_in(3, 10), 4000) is not None


def test_a_habit_that_is_given_up_is_forgotten() -> None:
    habit = Habit()
    asked(habit, 100.0, one_in(10, 10), 1)
    asked(habit, 40.0, one_in(10, 10), 1000)
    for number in range(2000, 6000):
        habit.departed(number, standing(100.0), 60)
    assert habit.share < 0.001


def test_nothing_is_kept_of_refusals_long_ago() -> None:
    habit = Habit()
    asked(habit, 100.0, one_in(10, 4), 1)
    for number in range(100, 5000):
        habit.departed(number, standing(100.0), 60)
    assert habit._trial is None


def test_an_endless_pace_is_a_pace() -> None:
    habit = Habit()
    habit.refused(1, Standing(60, math.inf, 60_000.0), 59, 60)
    assert habit.share == 0.0

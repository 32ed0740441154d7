"""Refusals that come however slowly one asks: when that is believed, overlooked, shaken and forgotten."""

from __future__ import annotations

import pytest

from rewardcore.http.chance import Chance

LATENCY, USUAL, LOW = 2.0, 30.0, 10.0


class Watched:
    """Departures one after another, at a pace that is given."""

    def __init__(self) -> None:
        self.chance, self.now, self.number, self.latency = Chance(), 0.0, 0, LATENCY

    def answered(self, times: int, pace: float) -> None:
        for _ in range(times):
            self.number += 1
            self.now += 1 / pace
            self.chance.answered(self.now, self.latency, pace)

    def refused(self, pace: float) -> bool:
        self.number += 1
        self.now += 1 / pace
        return self.chance.refused(self.number, self.latency, pace)


@pytest.fixture
def watched() -> Watched:
    """It has seen the usual pace borne."""
    watched = Watched()
    watched.answered(200, USUAL)
    assert watched.chance.width == pytest.approx(USUAL * LATENCY, rel=0.05)
    return watched


@pytest.fixture
def believing(watched: Watched) -> Watched:
    for _ in range(3):
        watched.answered(9, LOW)
        is_overlooked = watched.refused(LOW)
    assert is_overlooked
    return watched


def test_what_is_refused_at_a_third_of_what_was_borne_is_chance_the_third_time(watched: Watched) -> None:
    told = []
    for _ in range(3):
        watched.answered(9, LOW)
        told.append(watched.refused(LOW))
    assert told == [False, False, True]
    assert watched.chance.share == pytest.approx(0.1, abs=0.01)


def test_what_is_refused_at_the_pace_that_was_borne_never_is(watched: Watched) -> None:
    for _ in range(50):
        watched.answered(9, USUAL)
        assert not watched.refused(USUAL)


def test_nor_is_what_is_refused_at_as_many_at_once_by_an_endpoint_that_has_become_slow(watched: Watched) -> None:
    """It accepts fewer in a second, and its cap is where it was."""
    watched.latency = LATENCY * USUAL / LOW
    for _ in range(50):
        watched.answered(9, LOW)
        assert not watched.refused(LOW)


def test_nor_is_a_storm_which_refuses_one_after_another(watched: Watched) -> None:
    for _ in range(10):
        watched.answered(20, LOW)
        watched.number += 1
        watched.chance.failed(watched.number)  # the first of them may have failed in another way
        assert not any(watched.refused(LOW) for _ in range(10))


def test_nor_is_an_endpoint_that_refuses_more_than_a_third(watched: Watched) -> None:
    for _ in range(50):
        watched.answered(1, LOW)
        assert not watched.refused(LOW)


def test_one_after_the_other_is_borne_by_whoever_has_answered_a_few() -> None:
    """Else an endpoint that refuses by chance from its first request on would never be seen at another pace."""
    watched = Watched()
    for _ in range(3):
        watched.answered(9, 0.3 / LATENCY)
        is_overlooked = watched.refused(0.3 / LATENCY)
    assert is_overlooked


def test_believed_it_is_overlooked_at_every_pace_until_more_is_refused_than_chance_explains(believing: Watched) -> None:
    for _ in range(30):
        believing.answered(9, USUAL)
        assert believing.refused(USUAL)
    assert [believing.refused(USUAL) for _ in range(6)] == [True] * 3 + [False] * 3, "so many in a row are no chance"
    assert believing.chance.share, "a belief that has long held is kept: a limit was met beside it"


def test_a_belief_that_is_shaken_at_once_is_given_up_and_the_next_needs_twice_as_much(believing: Watched) -> None:
    assert not all(believing.refused(USUAL) for _ in range(20))
    assert (believing.chance.share, believing.chance.width) == (0.0, 0.0)
    believing.answered(200, USUAL)
    told = []
    for _ in range(6):
        believing.answered(9, LOW)
        told.append(believing.refused(LOW))
    assert told == [False] * 5 + [True]


def test_a_belief_is_over_when_nothing_is_refused_any_more(believing: Watched) -> None:
    believing.answered(2000, USUAL)
    assert not believing.chance.share
    assert not believing.refused(USUAL)

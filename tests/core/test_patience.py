"""How long one attempt may take: what the caller says, or generously what replies took."""

import math

import pytest

from rewardcore.http.pace import Patience


def heard(*seconds, fixed=None):
    patience = Patience(fixed)
    for taken in seconds:
        patience.heard(taken)
    return patience


def test_before_a_few_replies_nothing_is_known():
    assert heard(*[0.1] * 7).seconds(1000, 0) == math.inf
    assert heard(*[0.1] * 8).seconds(1000, 0) < math.inf


@pytest.mark.parametrize(
    ("slowest", "overtaken_by", "stalls", "seconds"),
    [
        (0.1, 16, 0, 2.0),
        (0.1, 15, 0, 5.0),
        (3.0, 16, 0, 12.0),
        (3.0, 0, 0, 24.0),
        (3.0, 16, 1, 24.0),
        (3.0, 16, 3, 96.0),
        (0.1, -60, 2, 20.0),
    ],
)
def test_it_is_many_times_the_slowest_reply_and_longer_each_time(slowest, overtaken_by, stalls, seconds):
    patience = heard(*[0.01] * 20, slowest, *[0.01] * 3)
    assert patience.seconds(overtaken_by, stalls) == pytest.approx(seconds, rel=0.02)


def test_a_slow_time_is_forgotten():
    patience = heard(*[60.0] * 10, *[0.1] * 10_000)
    assert patience.seconds(16, 0) == 2.0


def test_what_the_caller_says_is_what_counts():
    assert [heard(*[9.0] * 50, fixed=1.5).seconds(overtaken, stalls) for overtaken in (0, 99) for stalls in (0, 5)] == [
        1.5
    ] * 4

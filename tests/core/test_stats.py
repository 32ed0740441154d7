"""Counters that only grow, and percentiles that were really seen."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.stats import PaceChange, PaceState, Stats, percentile


@pytest.mark.parametrize(
    ("values", "fraction", "expected"),
    [
        ([], 0.5, None),
        ([3.0], 0.5, 3.0),
        ([3.0], 0.99, 3.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        (range(1, 101), 0.50, 50),
        (range(1, 101), 0.90, 90),
        (range(1, 101), 0.99, 99),
        (range(1, 11), 0.99, 10),
    ],
)
def test_percentiles_are_nearest_rank(values, fraction, expected):
    assert percentile(values, fraction) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_at_least_the_fraction_lies_at_or_below_a_percentile_that_was_seen(values, fraction):
    ordered = sorted(values)
    value = percentile(ordered, fraction)
    assert value in values
    assert sum(other <= value for other in values) >= math.floor(fraction * len(values))


def test_a_new_judge_has_done_nothing():
    stats = Stats().snapshot()
    assert (stats.requests, stats.failed, stats.p50, stats.p99) == (0, {}, None, None)


def test_a_snapshot_does_not_change_with_the_counters():
    counters = Stats()
    before = counters.snapshot()
    counters.departed()
    counters.count_failure("Denied")
    assert (before.requests, before.failed) == (0, {})
    assert counters.snapshot().failed == {"Denied": 1}


def test_the_peak_is_the_most_that_was_ever_in_flight():
    counters = Stats()
    for step in (1, 1, 1, -1, -1, 1):
        if step > 0:
            counters.departed()
        else:
            counters.in_flight -= 1
    stats = counters.snapshot()
    assert (stats.requests, stats.in_flight, stats.peak_in_flight) == (4, 2, 3)


def test_tokens_add_up_whether_or_not_a_reply_counts_them():
    counters = Stats()
    for usage in ({"prompt_tokens": 5, "completion_tokens": 2}, None, {}, {"completion_tokens": 1}):
        counters.arrived(0.1, usage)
    stats = counters.snapshot()
    assert (stats.prompt_tokens, stats.completion_tokens) == (5, 3)


def test_memory_is_bounded_and_percentiles_are_of_the_latest_replies():
    counters = Stats()
    for latency in range(100_000):
        counters.arrived(float(latency), None)
    assert len(counters.latencies) == 4096
    assert counters.snapshot().p50 > 95_000


def test_what_two_judges_did_one_after_the_other_adds_up():
    first, second = Stats(), Stats()
    for stats, latency in ((first, 1.0), (first, 2.0), (second, 3.0)):
        stats.departed()
        stats.arrived(latency, {"prompt_tokens": 5})
    first.count_failure("Denied")
    second.count_failure("Denied")
    second.count_failure("Refused")
    total = first + second
    assert (total.requests, total.prompt_tokens, total.failed) == (3, 15, {"Denied": 2, "Refused": 1})
    assert (total.in_flight, total.peak_in_flight) == (second.in_flight, 2)
    assert list(total.latencies) == [1.0, 2.0, 3.0]
    assert first.requests == 2


def test_printed_figures_show_the_percentiles():
    stats = Stats()
    stats.arrived(0.25, None)
    assert "p50=0.250" in str(stats)
    assert "latencies" not in str(stats)


PACE = PaceState(
    "window",
    "7 at once",
    (
        PaceChange(3.0, "probing", "one at a time", "nothing gets through"),
        PaceChange(5.5, "window", "7 at once", "it answers again: as before"),
    ),
)


def test_how_fast_is_asked_is_the_later_judges_and_the_first_ones_where_that_has_not_told_yet():
    assert (Stats() + Stats()).pace is None
    assert (Stats(pace=PACE) + Stats()).pace == PACE
    assert (Stats(pace=PACE) + Stats(pace=PACE._replace(allowed="8 at once"))).pace.allowed == "8 at once"


def test_how_fast_is_asked_survives_a_snapshot_and_a_pipe():
    stats = pickle.loads(pickle.dumps(Stats(pace=PACE)))
    assert stats.snapshot().pace == PACE
    assert "7 at once" not in str(stats), "it is many lines, and is printed by itself"


def test_printed_it_says_what_is_allowed_and_how_it_came_to_that():
    assert str(PACE).splitlines() == [
        "window: 7 at once",
        "      -2.5 s  probing, one at a time: nothing gets through",
        "      +0.0 s  window, 7 at once: it answers again: as before",
    ]

"""The retry policy as arithmetic: how long, how often, and when not at all."""

import datetime
import email.utils
import inspect
import math
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore import Failure, failures
from rewardcore.failures import Denied, RateLimited, Transient, WorkerDied
from rewardcore.http.retry import (
    BASE_DELAY,
    MAX_ATTEMPTS,
    MAX_DELAY,
    MAX_WORKER_DEATHS,
    Breaker,
    RetryBudget,
    backoff,
    may_retry,
    parse_retry_after,
    retry_delay,
)

relaxed = settings(deadline=None)
shares = st.floats(0.0, 1.0, exclude_max=True)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
KINDS = [c for _, c in inspect.getmembers(failures, inspect.isclass) if issubclass(c, Failure)]


def failed(retry_after=None):
    failure = Transient("503")
    failure.retry_after = retry_after
    return failure


@relaxed
@given(st.integers(1, 10_000), shares)
def test_a_wait_lies_between_nothing_and_a_ceiling_that_doubles(count, share):
    ceiling = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(count - 1, 60))
    assert 0.0 <= backoff(count, lambda: share) <= ceiling
    assert backoff(count, lambda: 0.0) == 0.0
    assert backoff(count, lambda: 1.0) == ceiling


@relaxed
@given(st.integers(1, 100), shares, st.floats(0.0, 1e6))
def test_a_retry_never_comes_sooner_than_the_endpoint_asked(count, share, asked):
    delay = retry_delay(failed(asked), count, lambda: share)
    assert asked <= delay <= asked + 0.1 * MAX_DELAY
    assert retry_delay(failed(), count, lambda: share) == backoff(count, lambda: share)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 7 "}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "-5", "retry-after": "9"}, 9.0),
        ({"retry-after-ms": "NaN"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "7 seconds"}, None),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:15 GMT"}, 10.0),
        ({"retry-after": "Friday, 02-Jan-26 03:04:15 GMT"}, 10.0),
        ({"retry-after": "Fri Jan  2 03:04:15 2026"}, 10.0),
        ({"retry-after": "Fri, 02 Jan 2026 04:04:15 +0100"}, 10.0),
        ({"retry-after": "Fri, 02 Jan 2026 03:04:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 99 Jan 2026 99:99:99 GMT"}, None),
        ({"retry-after": "Fri, 02 Jan 99999999999 03:04:15 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_a_date_or_milliseconds_and_nonsense_is_absent(headers, seconds):
    assert parse_retry_after(headers, NOW.timestamp) == seconds


def test_a_date_without_a_zone_is_not_read_in_the_machines_own(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_retry_after({"retry-after": "Fri Jan  2 03:04:15 2026"}, NOW.timestamp) == 10.0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "TZ" not in os.environ or os.environ["TZ"] != "Asia/Tokyo"


@relaxed
@given(st.text() | st.floats().map(str) | st.integers().map(str), st.text())
def test_any_header_is_a_finite_wait_or_none(value, milliseconds):
    for headers in ({"retry-after": value}, {"retry-after-ms": milliseconds, "retry-after": value}):
        seconds = parse_retry_after(headers, NOW.timestamp)
        assert seconds is None or (math.isfinite(seconds) and seconds >= 0.0)


@relaxed
@given(st.integers(0, 10**6))
def test_a_date_and_seconds_mean_the_same(seconds):
    date = email.utils.format_datetime(NOW + datetime.timedelta(seconds=seconds), usegmt=True)
    asked = [parse_retry_after({"retry-after": value}, NOW.timestamp) for value in (date, str(seconds))]
    assert asked[0] == asked[1] == seconds


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_failure_is_tried_again_exactly_where_its_kind_says_so(kind):
    assert may_retry([kind("x")]) == kind.retryable


def test_attempts_are_bounded_except_at_a_rate_limit_where_the_deadline_decides():
    assert may_retry([Transient("x")] * (MAX_ATTEMPTS - 1))
    assert not may_retry([Transient("x")] * MAX_ATTEMPTS)
    assert may_retry([RateLimited("x")] * 1000)


def test_rate_limits_do_not_use_up_the_attempts_of_other_failures():
    assert may_retry([RateLimited("x")] * 50 + [Transient("x")])
    assert not may_retry([RateLimited("x")] * 50 + [Transient("x")] * MAX_ATTEMPTS)


def test_a_sample_that_workers_die_on_is_given_up_but_not_for_another_failure():
    assert may_retry([WorkerDied("x")] * (MAX_WORKER_DEATHS - 1))
    assert not may_retry([WorkerDied("x")] * MAX_WORKER_DEATHS)
    assert may_retry([Transient("x"), Transient("x"), WorkerDied("x")])


# The budget.


def test_retries_are_free_while_nearly_all_goes_well():
    budget = RetryBudget()
    for _ in range(100):
        assert budget.wait(0.0) == 0.0
        budget.spend()


def test_one_bad_reply_among_many_good_ones_costs_nothing_for_long():
    budget = RetryBudget()
    for _ in range(1000):
        budget.outcome(False)
        for _ in range(19):
            budget.outcome(True)
        assert budget.wait(0.0) == 0.0
        budget.spend()


events = st.lists(st.sampled_from(["first", "retry", "retry", "later"]), max_size=400)


@relaxed
@given(events, st.sampled_from([0.5, 1.0, 6.0]))
def test_in_a_lasting_storm_retries_are_a_tenth_of_traffic_besides_burst_and_trickle(events, trickle):
    budget, now, firsts, retries = RetryBudget(trickle), 0.0, 1, 0
    budget.sent()
    budget.outcome(False)
    for event in events:
        if event == "first":
            budget.sent()
            budget.outcome(False)
            firsts += 1
        elif event == "retry" and budget.wait(now) == 0.0:
            budget.spend()
            budget.outcome(False)
            retries += 1
        elif event == "later":
            now += 0.1
        assert retries <= 0.1 * firsts + RetryBudget.BURST + trickle * now + 1e-3


@relaxed
@given(st.integers(0, 200), st.floats(0, 1e6))
def test_a_wait_is_always_enough(retries, start):
    budget = RetryBudget(trickle=2.0)
    now = start
    for _ in range(20):
        budget.outcome(False)
    for _ in range(retries):
        now += budget.wait(now)
        assert budget.wait(now) <= 1e-9 * max(1.0, now)
        budget.spend()


def test_a_storm_ends_for_a_judge_that_only_has_retries_left():
    """Nothing but the trickle goes out; the first few successes end the storm, and then all may go."""
    budget, now = RetryBudget(trickle=1.0), 0.0
    for _ in range(200):
        budget.outcome(False)
    for _ in range(20):
        now += budget.wait(now)
        budget.spend()
        budget.outcome(False)
    assert budget.wait(now) > 0.0
    needed = 0
    while budget.wait(now) > 0.0 or budget._health < RetryBudget.HEALTHY:
        now += budget.wait(now)
        budget.spend()
        budget.outcome(True)
        needed += 1
    assert needed <= 20
    for _ in range(1000):
        assert budget.wait(now) == 0.0
        budget.spend()


def test_a_clock_that_stands_still_or_goes_back_earns_nothing():
    budget = RetryBudget(trickle=1.0)
    budget.outcome(False)
    for _ in range(10):
        assert budget.wait(100.0) == 0.0
        budget.spend()
    assert budget.wait(100.0) == pytest.approx(1.0)
    assert budget.wait(50.0) == pytest.approx(1.0)


def test_a_breaker_keeps_the_first_failure_and_closes_for_the_next_run():
    breaker, first = Breaker(), Denied("first")
    assert breaker.open(first)
    assert not breaker.open(Denied("second"))
    assert breaker.failure is first
    breaker.close()
    assert breaker.failure is None
    assert breaker.open(Denied("third"))

"""The retry policy as arithmetic: how long, how often, and when not at all."""

import datetime
import email.utils
import math
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.failures import BrokenReply, ConnectionFailed, Overloaded, RateLimited, Transient, WorkerDied
from rewardcore.http.retry import (
    BASE_DELAY,
    MAX_DELAY,
    MAX_RETRIES,
    MAX_WORKER_DEATHS,
    Blame,
    backoff,
    parse_retry_after,
)

shares = st.floats(0.0, 1.0, exclude_max=True)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


@given(st.integers(1, 10_000), shares)
def test_a_wait_lies_between_nothing_and_a_ceiling_that_doubles(count, share):
    ceiling = min(MAX_DELAY, BASE_DELAY * 2.0 ** min(count - 1, 60))
    assert 0.0 <= backoff(count, lambda: share) <= ceiling
    assert backoff(count, lambda: 0.0) == 0.0
    assert backoff(count, lambda: 1.0) == ceiling


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


@given(st.text() | st.floats().map(str) | st.integers().map(str), st.text())
def test_any_header_is_a_finite_wait_or_none(value, milliseconds):
    for headers in ({"retry-after": value}, {"retry-after-ms": milliseconds, "retry-after": value}):
        seconds = parse_retry_after(headers, NOW.timestamp)
        assert seconds is None or (math.isfinite(seconds) and seconds >= 0.0)


@given(st.integers(0, 10**6))
def test_a_date_and_seconds_mean_the_same(seconds):
    date = email.utils.format_datetime(NOW + datetime.timedelta(seconds=seconds), usegmt=True)
    asked = [parse_retry_after({"retry-after": value}, NOW.timestamp) for value in (date, str(seconds))]
    assert asked[0] == asked[1] == seconds


# Whose fault it is.

ENDPOINTS_OWN = [Transient, Overloaded, ConnectionFailed]


def falls(blame, who, kind, number, since=0, got_through=False, is_known=False):
    return blame.falls_on(who, number, kind("x"), since, got_through, is_known)


@pytest.mark.parametrize("kind", [*ENDPOINTS_OWN, RateLimited])
def test_where_nobody_gets_through_it_is_the_endpoints_fault(kind):
    blame = Blame()
    assert not any(falls(blame, who, kind, number) for number in range(1, 50) for who in "abc")
    assert not any(falls(blame, "alone", kind, number) for number in range(50, 100)), "also for one that is alone"


@pytest.mark.parametrize("kind", ENDPOINTS_OWN)
def test_where_others_get_through_that_left_later_it_is_the_samples_fault(kind):
    assert falls(Blame(), "a", kind, 3, since=1, got_through=True)


def test_a_rate_limit_is_never_the_samples_fault():
    assert not falls(Blame(), "a", RateLimited, 3, since=1, got_through=True)
    assert not falls(Blame(), "a", RateLimited, 3, since=1, got_through=True, is_known=True)


def test_an_overload_is_the_samples_fault_only_if_nobody_else_was_refused():
    blame = Blame()
    assert not falls(blame, "other", Overloaded, 2)
    blame.answered()
    assert not falls(blame, "a", Overloaded, 3, since=1, got_through=True)
    blame.answered()
    assert falls(blame, "a", Overloaded, 4, since=3, got_through=True)
    assert not falls(blame, "other", Overloaded, 5, since=2, got_through=True), "a was refused meanwhile"


@pytest.mark.parametrize("kind", [Transient, ConnectionFailed])
def test_the_last_samples_of_a_batch_keep_their_fault_while_only_such_fail(kind):
    blame = Blame()
    assert all(falls(blame, who, kind, n, since=n, is_known=True) for n in range(10) for who in "ab")
    assert not falls(blame, "stranger", kind, 11)
    assert not falls(blame, "a", kind, 12, is_known=True), "now it may be an outage"
    blame.answered()
    assert falls(blame, "a", kind, 13, is_known=True)


@pytest.mark.parametrize("kind", [BrokenReply, WorkerDied])
def test_a_broken_reply_or_a_dead_worker_is_always_the_samples(kind):
    assert falls(Blame(), "a", kind, 1)


def test_faults_are_final_after_a_few_and_dead_workers_after_two():
    blame = Blame()
    assert not blame.is_final([Transient("x")] * MAX_RETRIES)
    assert blame.is_final([Transient("x")] * (MAX_RETRIES + 1))
    assert not blame.is_final([WorkerDied("x")] * (MAX_WORKER_DEATHS - 1))
    assert blame.is_final([Transient("x"), *[WorkerDied("x")] * MAX_WORKER_DEATHS])


@pytest.mark.parametrize("retries", [0, 1, 10])
def test_how_many_faults_are_final_is_up_to_the_caller(retries):
    assert not Blame(retries).is_final([Transient("x")] * retries)
    assert Blame(retries).is_final([Transient("x")] * (retries + 1))

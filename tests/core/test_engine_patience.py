"""An endpoint that stalls, or was never there: what is asked again, what ends the run, and what is told of it."""

import logging
import math
import re

import pytest

from rewardcore.failures import ConnectionFailed, NeverAnswered, RateLimited, TlsFailed, UnknownHost, WrongPath
from rewardcore.http.engine import LATE_SECONDS
from rewardcore.http.pace import Patience
from tests.core.test_engine import Desk, failed


def a_desk(*, request_timeout=None, startup_timeout=math.inf, limit=60):
    return Desk(limit=limit, patience=Patience(request_timeout), startup_timeout=startup_timeout)


def statuses(call):
    return [call.told[index].status for index in sorted(call.told)]


# A request that stalls.


def test_one_stall_in_a_hundred_costs_neither_the_sample_nor_the_deadline():
    desk = a_desk()
    call = desk.call(*range(100), deadline=15.0)
    stalled = None
    while len(call.told) < 99:
        for flight in desk.flights():
            if flight.number == 40:
                stalled = flight
            else:
                desk.now += 0.001
                desk.reply(flight)
    assert desk.take() == pytest.approx(2.0, abs=0.2)
    desk.now += 2.0
    assert desk.given_up() is stalled
    again = desk.flight()
    assert again.request == stalled.request
    desk.engine.gone(stalled)
    desk.reply(again)
    assert statuses(call) == ["ok"] * 100
    assert [call.told[index].attempts for index in sorted(call.told)].count(2) == 1
    assert (desk.counters.requests, desk.counters.retried, desk.counters.in_flight) == (101, 1, 0)
    assert desk.now < 3.0


def test_a_stall_whose_worker_lets_go_late_still_holds_its_permit():
    desk = a_desk(request_timeout=5.0, limit=1)
    call = desk.call("a")
    desk.flight()
    desk.now = 5.0
    stalled = desk.given_up()
    assert desk.idle()
    desk.engine.gone(stalled)
    desk.now += 1.0
    desk.reply(desk.flight())
    assert statuses(call) == ["ok"]


def test_a_request_timeout_counts_for_each_attempt_and_the_deadline_for_all():
    desk = a_desk(request_timeout=2.0)
    call = desk.call("a", deadline=7.0)
    attempts = 0
    while not call.told:
        step = desk.take()
        if isinstance(step, float):
            desk.now += 0.0 if call.told else step
        elif hasattr(step, "flight"):
            desk.engine.gone(step.flight)
        else:
            attempts += 1
    assert statuses(call) == ["timeout"]
    assert call.told[0].attempts == attempts
    assert 2 <= attempts <= 4
    assert "no reply from 127.0.0.1:8000 within 2.0 s" in call.told[0].error
    assert desk.now == 7.0


def test_one_that_stalled_before_and_may_take_longer_hides_no_other():
    desk = a_desk()
    desk.call(*range(8))
    for flight in desk.flights():
        desk.reply(flight)
    desk.call("slow")
    first = desk.flight()
    desk.now = 5.0
    assert desk.given_up() is first
    desk.engine.gone(first)
    again = desk.flight()  # has ten seconds
    desk.now = 6.0
    desk.call("other")
    other = desk.flight()  # has five
    assert desk.take() == pytest.approx(5.0)
    desk.now = 11.0
    assert desk.given_up() is other
    assert again.in_the_air


def test_whoever_joins_a_request_that_is_asked_again_shares_it():
    desk = a_desk(request_timeout=5.0)
    first = desk.call("a")
    stalled = desk.flight()
    desk.now = 5.0
    assert desk.given_up() is stalled
    second = desk.call("a")
    again = desk.flight()
    desk.engine.gone(stalled)
    desk.reply(again)
    assert statuses(first) == statuses(second) == ["ok"]
    assert desk.counters.coalesced == 1


def test_nobody_asks_again_for_what_nobody_waits_for():
    desk = a_desk(request_timeout=5.0)
    call = desk.call("a")
    late = desk.flight()
    desk.engine.abandon(call, desk.now)
    desk.now = 5.0
    assert desk.take() == pytest.approx(LATE_SECONDS - 5.0)
    joined = desk.call("a")
    assert desk.take() == 0.0
    assert desk.given_up() is late  # it is wanted again, and has been in the air for too long
    desk.engine.gone(late)
    desk.reply(desk.flight())
    assert statuses(joined) == ["ok"]


def test_an_endpoint_that_has_become_slow_for_all_is_not_asked_again_at_once():
    """Ten times slower than ever before, but in the order in which it was asked."""
    desk = a_desk()
    call = desk.call(*range(60))
    for flight in desk.flights():
        desk.now += 0.001
        desk.reply(flight)
    more = desk.call(*range(100, 160))
    flights = desk.flights()
    desk.now += 4.0
    assert isinstance(desk.take(), float)
    for flight in flights:
        desk.reply(flight)
    assert statuses(call) + statuses(more) == ["ok"] * 120
    assert desk.counters.retried == 0


# An endpoint that has never answered.


def test_an_endpoint_that_has_never_answered_ends_the_run_after_startup_timeout(lines):
    desk = a_desk(startup_timeout=60.0)
    call = desk.call(*range(300))
    desk.drive(lambda flight: failed(ConnectionFailed))
    assert statuses(call) == ["failed"] * 300
    assert {verdict.error.split(":")[0] for verdict in call.told.values()} == {"NeverAnswered"}
    assert "startup_timeout" in call.told[299].error
    assert 60.0 <= desk.now < 80.0
    assert desk.counters.requests < 60
    assert lines[0].endswith("; it has never answered, and is asked for 60 s (startup_timeout)")
    assert "the rest of this run is not sent" in lines[-1]
    assert len(lines) < 12


def test_the_next_run_asks_a_server_that_was_not_there_again():
    desk = a_desk(startup_timeout=60.0)
    desk.call("a")
    desk.drive(lambda flight: failed(ConnectionFailed))
    call, began = desk.call("a"), desk.now
    desk.drive(lambda flight: failed(ConnectionFailed))
    assert statuses(call) == ["failed"]
    assert desk.now >= began + 60.0
    desk.now += 10.0
    call = desk.call("a")
    while not call.told:
        step = desk.take()
        if isinstance(step, float):
            desk.now += step
        else:
            desk.reply(step)
    assert statuses(call) == ["ok"]


@pytest.mark.parametrize("kind", [RateLimited, ConnectionFailed])
def test_an_endpoint_that_has_answered_is_waited_for_until_the_deadline(kind):
    desk = a_desk(startup_timeout=60.0)
    call = desk.call("a", "b")
    first, other = desk.flights()
    desk.settle(first, failed(RateLimited))
    desk.settle(other, failed(kind))
    desk.drive(lambda flight: failed(kind))
    assert statuses(call) == ["timeout"] * 2
    assert desk.now >= 300.0


@pytest.mark.parametrize("kind", [UnknownHost, TlsFailed, WrongPath])
def test_what_no_request_can_get_past_ends_the_run_at_once(kind, lines):
    desk = a_desk(limit=2)
    call = desk.call(*range(50))
    for flight in desk.flights():
        desk.settle(flight, failed(kind))
    while desk.take() == 0.0:
        pass
    assert desk.take() == math.inf
    assert statuses(call) == ["failed"] * 50
    assert {verdict.error for verdict in call.told.values()} == {f"{kind.__name__}: {kind.__name__} happened"}
    assert desk.counters.requests == 2
    assert lines == [f"{kind.__name__} happened; the rest of this run is not sent"]


@pytest.mark.parametrize(("kind", "status"), [(UnknownHost, "ok"), (TlsFailed, "failed"), (WrongPath, "failed")])
def test_once_it_has_replied_the_same_is_one_samples_own(kind, status):
    desk = a_desk(limit=1)
    call = desk.call(*range(3))
    desk.reply(desk.flight())
    desk.settle(desk.flight(), failed(kind))
    while len(call.told) < 3:
        step = desk.take()
        if isinstance(step, float):
            desk.now += step
        else:
            desk.reply(step)
    assert statuses(call) == ["ok", status, "ok"]


# What is told.


def test_the_first_retry_is_told_with_what_is_being_done(lines):
    desk = a_desk()
    desk.call(*range(100))
    flights = desk.flights()
    desk.reply(flights[0])
    for flight in flights[1:40]:
        desk.settle(flight, failed(RateLimited))
    assert lines[0] == "RateLimited: RateLimited happened; asking again, 60 at once"
    assert re.fullmatch(r"\d+ requests failed in 0.0 s: \d+ RateLimited .*; asking again, 26 at once", lines[1])
    assert len(lines) == 2


def test_each_attempt_is_told_to_whoever_asks_for_it(caplog):
    caplog.set_level(logging.DEBUG, "rewardcore")
    desk = a_desk()
    desk.call("a")
    flight = desk.flight()
    desk.now = 0.25
    desk.settle(flight, failed(RateLimited))
    key = flight.request.key.hex()[:16]
    assert caplog.messages[0] == f"{key}, attempt 1, 0.250 s: RateLimited: RateLimited happened"


def test_an_outage_that_never_ends_is_reported_no_more_than_every_ten_seconds(lines):
    desk = a_desk()
    desk.call(*range(60), deadline=100.0)
    desk.drive(lambda flight: failed(RateLimited))
    assert 5 <= len(lines) <= 11


def test_never_answered_is_final_and_ends_the_run():
    assert NeverAnswered.opens_breaker
    assert not NeverAnswered.retryable

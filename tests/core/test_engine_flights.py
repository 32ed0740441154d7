"""The life of a request in the engine: wanted, late, joined again, given up, gone; and what all of it costs."""

import itertools
import math
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore import MemoryCache
from rewardcore.failures import Denied, Disconnected, RateLimited, Rejected, Transient, WorkerDied
from rewardcore.http.engine import LATE_SECONDS, Flight, GiveUp
from rewardcore.http.retry import BASE_DELAY
from tests.core.test_engine import Desk, asked, failed


@pytest.fixture
def desk():
    return Desk()


def abandoned(desk, call):
    desk.engine.abandon(call, desk.now)


def overdue(desk, call):
    desk.now = call.deadline


either_way = pytest.mark.parametrize("leave", [abandoned, overdue])


def late(desk, *responses, leave=abandoned):
    """Flights that nobody waits for any more, the oldest first."""
    found = []
    for response in responses:
        call = desk.call(response, deadline=10.0)
        found.append(desk.flight())
        leave(desk, call)
    return found


def statuses(call):
    return [call.told[index].status for index in sorted(call.told)]


# Late: nobody waits, but the reply may still be of use.


@either_way
def test_a_flight_whose_last_seat_is_left_is_late_and_given_up_after_a_while(desk, leave):
    (flight,) = late(desk, "a", leave=leave)
    assert desk.take() == LATE_SECONDS
    desk.now += LATE_SECONDS - 1.0
    assert desk.take() == 1.0
    desk.now += 1.0
    assert desk.given_up() is flight
    assert desk.take() == math.inf


@either_way
def test_a_flight_is_wanted_while_anybody_sits_on_it(desk, leave):
    one, other = desk.call("a", deadline=10.0), desk.call("a", deadline=100.0)
    (flight,) = desk.flights()
    leave(desk, one)
    assert desk.take() == other.deadline - desk.now
    desk.now = 90.0
    assert desk.take() == 10.0
    desk.reply(flight)
    assert statuses(other) == ["ok"]


def test_a_call_that_sits_twice_on_a_flight_leaves_it_with_both_seats(desk):
    call = desk.call("a", "a")
    (flight,) = desk.flights()
    abandoned(desk, call)
    assert (desk.take(), list(flight.seats)) == (LATE_SECONDS, [])


@pytest.mark.parametrize(("leave", "attempts"), [(abandoned, 1), (overdue, 0)])
def test_a_late_flight_is_joined_again_by_the_same_sample(desk, leave, attempts):
    """Whoever gets a verdict first has paid: the overdue call did, and the abandoned one did not."""
    (flight,) = late(desk, "a", leave=leave)
    assert desk.idle()
    desk.now += LATE_SECONDS - 1.0
    call = desk.call("a")
    assert desk.idle()
    desk.now += 100.0
    assert desk.idle(), "it is wanted again"
    desk.reply(flight, "0.5")
    assert (call.told[0].score, call.told[0].attempts, call.told[0].cached) == (0.5, attempts, False)
    assert (desk.counters.requests, desk.counters.coalesced) == (1, 1)


def test_a_flight_that_is_left_again_is_late_from_then_on(desk):
    (flight,) = late(desk, "a")
    desk.now += 20.0
    call = desk.call("a")
    assert desk.idle()
    desk.now += 20.0
    abandoned(desk, call)
    assert desk.take() == LATE_SECONDS
    desk.now += LATE_SECONDS
    assert desk.given_up() is flight


def test_flights_are_given_up_each_at_its_own_time(desk):
    first, second = late(desk, "a", "b", leave=overdue)
    assert desk.take() == LATE_SECONDS - 10.0
    desk.now += LATE_SECONDS - 10.0
    assert desk.given_up() is first
    assert desk.take() == 10.0
    desk.now += 10.0
    assert desk.given_up() is second


@either_way
def test_a_late_reply_is_cached_and_told_to_nobody(desk, leave):
    call = desk.call("a", deadline=10.0)
    flight = desk.flight()
    leave(desk, call)
    assert desk.idle()
    told = dict(call.told)
    desk.reply(flight)
    assert (call.told, desk.take(), desk.counters.in_flight) == (told, math.inf, 0)
    again = desk.call("a")
    assert desk.idle()
    assert again.told[0].cached


# Given up: a ready sample needs the place.


def test_a_late_flight_is_evicted_before_the_flight_that_needs_its_place():
    desk = Desk(limit=1)
    (old,) = late(desk, "a")
    desk.call("b")
    assert desk.given_up() is old
    assert desk.take() == 300.0, "its permit is not free yet: only the deadline is left to wait for"
    assert desk.idle()
    desk.engine.gone(old)
    assert asked(desk.flight()) == "b"


@pytest.mark.parametrize("end", ["gone", "replied", "failed"])
def test_a_permit_is_free_only_when_the_attempt_has_ended(end):
    desk = Desk(limit=1)
    (old,) = late(desk, "a")
    desk.call("b")
    assert desk.given_up() is old
    assert desk.idle()
    assert desk.counters.in_flight == 1
    if end == "gone":
        desk.engine.gone(old)
    elif end == "replied":
        desk.reply(old)
    else:
        desk.settle(old, failed(Transient))
    assert desk.counters.in_flight == 0
    assert asked(desk.flight()) == "b"
    assert desk.engine._dying == 0


def test_only_as_many_as_are_needed_are_evicted_and_the_oldest_first():
    desk = Desk(limit=5)
    flights = late(desk, *"abcd")
    wanted = desk.call("e")
    desk.flight()
    desk.call("f", "g")
    assert [desk.given_up(), desk.given_up()] == flights[:2]
    assert desk.idle()
    desk.engine.gone(flights[1])
    assert asked(desk.flight()) == "f"
    assert desk.idle()
    desk.engine.gone(flights[0])
    assert asked(desk.flight()) == "g"
    assert desk.idle()
    assert (wanted.told, desk.counters.in_flight) == ({}, 5)


def test_a_free_place_is_taken_before_a_late_one():
    desk = Desk(limit=2)
    late(desk, "a")
    desk.call("b")
    assert asked(desk.flight()) == "b"
    assert desk.idle()


def test_nothing_is_evicted_for_a_ready_flight_that_nobody_wants_any_more():
    desk = Desk(limit=2)
    late(desk, "a", "b")
    desk.call("c")
    other = desk.call("d")
    desk.given_up()  # for c, and d would be next
    abandoned(desk, other)
    assert desk.idle()


def test_a_wanted_flight_is_never_evicted():
    desk = Desk(limit=2)
    desk.call("a", "b")
    desk.flights()
    desk.call("c")
    assert desk.engine.is_full
    assert desk.take() == 150.0  # then the first steps aside, if by then nobody has been heard


def test_a_late_flight_that_was_joined_again_is_not_evicted():
    desk = Desk(limit=2)
    first, second = late(desk, "a", "b")
    desk.call("a", "c")
    assert desk.given_up() is second
    assert desk.idle()
    assert list(first.seats)


def test_what_the_cache_or_a_flight_answers_evicts_nothing():
    desk = Desk(limit=2)
    desk.call("known")
    desk.reply(desk.flight())
    late(desk, "a", "b")
    call = desk.call("known", "a", "poison")
    assert desk.idle()
    assert sorted(call.told) == [0, 2]


def test_a_flight_that_is_given_up_is_forgotten_before_it_is_cancelled(desk):
    """Nobody may take a seat on a dying flight: the same sample gets one of its own."""
    (old,) = late(desk, "a")
    desk.now += LATE_SECONDS
    assert desk.given_up() is old
    call = desk.call("a")
    own = desk.flight()
    assert (own is not old, asked(own), desk.counters.coalesced) == (True, "a", 0)
    desk.engine.gone(old)
    follower = desk.call("a")
    assert desk.idle()
    assert desk.counters.coalesced == 1, "the end of the old one does not forget the new one"
    desk.reply(own)
    assert statuses(call) + statuses(follower) == ["ok", "ok"]


def test_an_answer_that_comes_after_all_is_cached_and_told_to_nobody(desk):
    call = desk.call("a")
    old = desk.flight()
    abandoned(desk, call)
    desk.now += LATE_SECONDS
    assert desk.given_up() is old
    second = desk.call("a")
    own = desk.flight()
    desk.reply(old, "0.25")
    assert (call.told, second.told, desk.counters.in_flight) == ({}, {}, 1)
    third = desk.call("a")
    assert desk.idle()
    assert third.told == {}, "it sits on the flight of the second"
    desk.reply(own, "0.5")
    assert (second.told[0].score, third.told[0].score) == (0.5, 0.5)


def test_an_answer_that_comes_after_all_is_paid_for(desk):
    (old,) = late(desk, "a")
    desk.now += LATE_SECONDS
    assert desk.given_up() is old
    desk.reply(old, "0.25")
    call = desk.call("a")
    assert desk.idle()
    assert (call.told[0].score, call.told[0].cached, desk.counters.requests) == (0.25, True, 1)


@either_way
@pytest.mark.parametrize("kind", [Transient, RateLimited, Disconnected])
def test_a_failed_attempt_that_nobody_wants_is_not_made_again(desk, leave, kind):
    (flight,) = late(desk, "a", leave=leave)
    assert desk.idle()
    desk.settle(flight, failed(kind))
    assert desk.take() == math.inf
    assert (desk.engine._flights, desk.engine._parked._entries) == ({}, [])
    call = desk.call("a")
    desk.now += 1.0
    assert desk.flight().attempts == 1
    assert call.told == {}


# Parked and ready flights.


@either_way
def test_a_parked_flight_that_nobody_wants_is_forgotten_and_asked_again_afresh(desk, leave):
    call = desk.call("a", deadline=10.0)
    old = desk.flight()
    desk.settle(old, failed(Transient, retry_after=9.0))
    leave(desk, call)
    assert desk.take() == math.inf
    again = desk.call("a")
    own = desk.flight()
    assert (own is not old, own.attempts, own.faults) == (True, 1, ())
    desk.now += 60.0
    assert desk.idle(), "the retry of the old one is not sent"
    desk.reply(own)
    assert (again.told[0].attempts, desk.counters.retried) == (1, 0)


def test_a_parked_flight_that_is_wanted_is_joined(desk):
    desk.call("a")
    flight = desk.flight()
    desk.settle(flight, failed(Transient))
    call = desk.call("a")
    assert desk.take() == pytest.approx(BASE_DELAY / 2)
    desk.now += BASE_DELAY / 2
    assert desk.flight() is flight
    desk.reply(flight)
    assert (call.told[0].status, desk.counters.coalesced) == ("ok", 1)


@either_way
def test_a_ready_flight_that_nobody_wants_is_not_sent(leave):
    desk = Desk(limit=1)
    desk.call("a")
    first = desk.flight()
    unwanted, wanted = desk.call("b", deadline=10.0), desk.call("c")
    assert desk.idle()
    leave(desk, unwanted)
    assert desk.idle()
    desk.reply(first)
    assert asked(desk.flight()) == "c"
    assert (desk.counters.requests, wanted.told) == (2, {})


@either_way
def test_a_retry_that_was_due_is_not_sent_once_nobody_wants_it(leave):
    """It left its place in the timetable and waits for a permit."""
    desk = Desk(limit=2)
    call = desk.call("a", deadline=10.0)
    desk.call("b", "c")
    retried, other = desk.flights()
    desk.settle(retried, failed(Transient))
    assert asked(desk.flight()) == "c"
    desk.now += 0.25
    assert desk.idle()
    leave(desk, call)
    desk.reply(other)
    assert desk.idle()
    assert desk.counters.requests == 3


def cut(desk, flights, left):
    """The last ones are refused, so that so many are borne."""
    for flight in reversed(flights[left:]):
        desk.settle(flight, failed(RateLimited, retry_after=100.0))
    assert desk.engine.pace.window == left
    desk.now += 0.1


def test_no_flight_departs_above_a_limit_that_was_cut():
    desk = Desk(limit=15)
    desk.call(*range(30))
    flights = desk.flights()
    cut(desk, flights, 9)
    assert desk.idle(), "nine are in the air"
    desk.settle(flights[2], failed(Rejected))
    assert len(desk.flights()) == 1


def test_a_cut_limit_takes_as_many_late_flights_as_stand_above_it():
    desk = Desk(limit=60)
    flights = late(desk, *range(9))
    desk.call(*range(100, 151))
    cut(desk, flights + desk.flights(), 9)
    desk.call("new")
    given_up = list(itertools.takewhile(lambda step: isinstance(step, GiveUp), iter(desk.take, None)))
    assert [step.flight for step in given_up] == flights[:1]
    assert desk.idle()
    desk.engine.gone(flights[0])
    assert asked(desk.flight()) == "new"


# Deadlines, and when to ask again.


def test_take_tells_every_call_whose_time_has_come_and_no_other(desk):
    calls = [desk.call(number, deadline=deadline) for number, deadline in enumerate([30.0, 10.0, 20.0])]
    desk.now = 20.0
    desk.take()
    assert [statuses(call) for call in calls] == [[], ["timeout"], ["timeout"]]


def test_take_tells_of_deadlines_though_every_place_is_taken():
    desk = Desk(limit=1)
    desk.call("a")
    desk.flight()
    call = desk.call("b", deadline=10.0)
    assert desk.take() == 10.0
    desk.now = 10.0
    assert desk.take() == 290.0
    assert statuses(call) == ["timeout"]


def test_take_tells_of_deadlines_though_the_endpoint_wants_to_be_left_alone(desk):
    call = desk.call("a", "b", deadline=10.0)
    desk.settle(desk.flight(), failed(RateLimited, retry_after=9.0))
    desk.call("c")
    desk.now = 10.0
    desk.take()
    assert statuses(call) == ["timeout", "timeout"]


def test_take_says_when_the_first_of_all_things_is_due(desk):
    desk.call("a", deadline=50.0)
    assert isinstance(desk.take(), Flight)
    assert desk.take() == 50.0, "a deadline"
    late(desk, "b")
    assert desk.take() == LATE_SECONDS, "the end of a late flight"
    desk.call("c")
    desk.settle(desk.flight(), failed(Transient, retry_after=20.0))
    assert desk.take() == pytest.approx(20.0 + 0.05 * BASE_DELAY), "a retry"
    desk.call("d", deadline=10.0)
    desk.flight()
    assert desk.take() == 10.0, "another deadline"


def test_take_says_when_a_retry_will_need_the_place_of_a_late_flight():
    desk = Desk(limit=2)
    late(desk, "a")
    desk.call("b")
    desk.settle(desk.flight(), failed(Transient, retry_after=5.0))
    late(desk, "c")
    desk.call("d")
    desk.given_up()  # for d; its permit is not free yet
    assert desk.take() == pytest.approx(5.0 + 0.05 * BASE_DELAY)
    desk.now += 5.0 + 0.05 * BASE_DELAY
    desk.given_up()  # for b


def test_an_engine_without_calls_has_nothing_to_wait_for(desk):
    assert desk.take() == math.inf
    desk.call("a")
    desk.reply(desk.flight())
    assert desk.take() == math.inf


def test_what_was_never_sent_took_no_time():
    desk = Desk(limit=1)
    desk.call("known")
    desk.now = 1.0
    desk.reply(desk.flight())
    call = desk.call("known", "poison", "sent", "ready", "ready too", deadline=10.0)
    desk.flight()
    desk.call("ready", deadline=5.0)
    desk.now = 11.0
    assert desk.idle()
    assert statuses(call) == ["ok", "failed", "timeout", "timeout", "timeout"]
    assert [call.told[index].latency for index in range(5)] == [0.0, 0.0, 10.0, 0.0, 0.0]
    assert [call.told[index].attempts for index in range(5)] == [0, 0, 1, 0, 0]


def test_what_the_breaker_or_a_close_ends_unsent_took_no_time():
    desk = Desk(limit=1)
    stopped = desk.call("a", "b")
    flight = desk.flight()
    desk.now = 3.0
    desk.settle(flight, failed(Denied))
    assert desk.idle()
    closed = desk.call("c", "d")
    desk.flight()
    desk.now = 5.0
    desk.engine.close(desk.now)
    assert [verdict.latency for verdict in stopped.told.values()] == [3.0, 0.0]
    assert [verdict.latency for verdict in closed.told.values()] == [2.0, 0.0]


# A cache that raises: a caller's own is guarded, and raises no more; test_guarded_cache.py.


class Unreadable(MemoryCache):
    def __init__(self, *numbers):
        super().__init__()
        self._gets, self._numbers = itertools.count(), numbers

    def get(self, key):
        if next(self._gets) in self._numbers:
            raise OSError("no such disk")
        return super().get(key)


class Unwritable(MemoryCache):
    def put(self, key, reply, material):
        if b"full" in material:
            raise OSError("the disk is full")
        super().put(key, reply, material)


def test_a_cache_of_ours_whose_get_raises_all_the_same_fails_that_sample_alone():
    desk = Desk(cache=Unreadable(1))
    call = desk.call("a", "b", "c")
    for flight in desk.flights():
        desk.reply(flight)
    assert statuses(call) == ["ok", "failed", "ok"]
    assert call.told[1].error == "Failure: an error inside rewardcore: OSError: no such disk"
    assert (call.told[1].attempts, desk.counters.requests) == (0, 2)
    assert desk.engine._flights == {}


def test_a_cache_whose_put_raises_for_a_late_reply_harms_nobody():
    desk = Desk(cache=Unwritable())
    (flight,) = late(desk, "full")
    call = desk.call("a")
    other = desk.flight()
    desk.reply(flight)
    desk.reply(other)
    assert statuses(call) == ["ok"]


# Whatever happens.


class History:
    """Random callers and a random driver; looks after every step."""

    def __init__(self, dice):
        self.dice = dice
        self.desk = Desk(limit=dice.randint(1, 6))
        self.calls, self.air, self.dying = [], [], []

    def open(self):
        responses = [self.dice.choice("abcdef") + self.dice.choice("12") for _ in range(self.dice.randint(1, 4))]
        draws = self.dice.choices([0, 0, 1], k=len(responses))
        self.calls.append(self.desk.call(*responses, deadline=self.dice.choice([1.0, 20.0, 100.0]), draws=draws))

    def abandon(self):
        if self.calls:
            abandoned(self.desk, self.dice.choice(self.calls))

    def take(self):
        step = self.desk.take()
        if isinstance(step, Flight):
            assert self.desk.counters.in_flight <= self.desk.engine.pace.window
            assert step.seats, "somebody wants it"
            assert step.request.key not in {flight.request.key for flight in self.air}, "it could have been shared"
            self.air.append(step)
        elif isinstance(step, GiveUp):
            assert not step.flight.seats, "nobody wants it"
            self.air.remove(step.flight)
            self.dying.append(step.flight)
        elif step < math.inf:
            self.wait_until(self.desk.now + step)
        return step

    def wait_until(self, due):
        """Nothing is sent and nobody is told before the time that take said."""
        told = self.told()
        if due - self.desk.now > 1e-6:  # else it is the same number
            self.desk.now += 0.9 * (due - self.desk.now)
            early = self.desk.take()
            assert not isinstance(early, Flight)
            if isinstance(early, GiveUp):  # see the retry that needs the place of a late flight
                assert self.dying
                self.air.remove(early.flight)
                self.dying.append(early.flight)
            assert self.told() == told
        self.desk.now = due

    def told(self):
        return sum(len(call.told) for call in self.calls)

    def answer(self):
        flights = self.air if self.dice.random() < 0.7 or not self.dying else self.dying
        if flights:
            flight = flights.pop(self.dice.randrange(len(flights)))
            kind = self.dice.choice([None, None, None, Transient, RateLimited, Rejected])
            if kind is None:
                self.desk.reply(flight)
            else:
                self.desk.settle(flight, failed(kind))

    def end(self):
        if self.dying:
            self.desk.engine.gone(self.dying.pop(0))

    def wait(self):
        self.desk.now += self.dice.choice([0.0, 0.1, 1.0, 15.0])


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_whatever_happens_places_are_kept_and_nothing_wanted_is_given_up(seed):
    dice = random.Random(seed)
    history = History(dice)
    desk, actions = history.desk, [History.open, History.abandon, History.answer, History.end, History.wait]
    for _ in range(200):
        dice.choice([*actions, History.take, History.take, History.take])(history)
        assert desk.counters.in_flight == len(history.air) + len(history.dying)
        assert desk.engine._dying == len(history.dying)
    while history.air or history.dying or history.take() != math.inf:
        history.answer()
        history.end()
    assert all(not call.waiting for call in history.calls), "everybody gets on"
    engine = desk.engine
    assert (desk.counters.in_flight, engine._open, engine._flights, engine._late) == (0, {}, {}, {})


# What it costs.

MANY = 20_000


def steps(action):
    """How many functions an action calls, ours and Python's."""
    count = 0

    def profile(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def expire_one_by_one(desk, calls):
    for call in sorted(calls, key=lambda call: call.deadline):
        desk.now = call.deadline
        while isinstance(desk.take(), GiveUp):
            pass


def expire_together(desk, calls):
    desk.now = max(call.deadline for call in calls)
    while isinstance(desk.take(), GiveUp):
        pass


def abandon_in_order(desk, calls):
    for call in calls:
        abandoned(desk, call)


def abandon_backwards(desk, calls):
    abandon_in_order(desk, reversed(calls))


def abandon_anyhow(desk, calls):
    abandon_in_order(desk, random.Random(0).sample(calls, len(calls)))


def close(desk, calls):
    desk.engine.close(desk.now)


WAYS_TO_END = [expire_one_by_one, expire_together, abandon_in_order, abandon_backwards, abandon_anyhow, close]


def opened(count, in_the_air=0, parked=0):
    desk = Desk(limit=max(1, in_the_air))
    calls = [desk.call(number, deadline=100.0 + number % 7919) for number in range(count)]
    for number in range(in_the_air and parked + in_the_air):
        flight = desk.flight()
        if number < parked:
            desk.settle(flight, failed(WorkerDied, retry_after=90.0))  # which says nothing of the endpoint
    return desk, calls


@pytest.mark.parametrize("end", WAYS_TO_END)
def test_ending_a_call_costs_the_same_however_many_are_open(end):
    costs = {}
    for count in (MANY // 20, MANY):
        desk, calls = opened(count, in_the_air=30, parked=count // 10)
        costs[count] = steps(lambda desk=desk, calls=calls: end(desk, calls)) / count
    assert costs[MANY] < 1.5 * costs[MANY // 20]


def test_opening_a_call_costs_the_same_however_many_are_open():
    costs = {}
    for count in (MANY // 20, MANY):
        desk, _ = opened(count)
        costs[count] = steps(lambda desk=desk: [desk.call(number) for number in range(100)])
    assert costs[MANY] < 1.1 * costs[MANY // 20]


@pytest.mark.parametrize("end", WAYS_TO_END)
def test_nothing_is_kept_of_calls_that_have_ended(end):
    desk, calls = opened(MANY, in_the_air=30, parked=MANY // 10)
    end(desk, calls)
    engine = desk.engine
    kept = [engine._open, engine._flights, engine._late, engine._deadlines._entries, engine._parked._entries]
    assert [len(container) <= 2 * 64 for container in kept] == [True] * len(kept)
    while isinstance(step := desk.take(), GiveUp) or step < math.inf:
        desk.now += 0.0 if isinstance(step, GiveUp) else step
    kept += [engine._calls, engine._ready]
    assert [len(container) for container in kept] == [0] * len(kept)


def test_deadlines_that_never_come_are_not_kept():
    """Calls that are answered long before their deadline, for hours."""
    desk = Desk()
    for number in range(MANY):
        desk.call(number)
        desk.reply(desk.flight())
    assert len(desk.engine._deadlines._entries) <= 2 * 64
    assert (desk.engine._open, desk.engine._flights) == ({}, {})


def test_calls_that_come_and_go_while_every_place_is_taken_are_not_kept():
    desk = Desk(limit=1)
    desk.call("in the air", "ready")
    desk.flight()
    for number in range(1000):
        abandoned(desk, desk.call(number))
        assert desk.idle()
    assert len(desk.engine._calls) <= 2 * 64

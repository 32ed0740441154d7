"""The engine, driven by hand on a clock that only the test moves: no sockets, no threads, no waiting."""

import itertools
import logging
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore import Endpoint, MemoryCache, Sample, SqliteCache, Unparsed, rubrics
from rewardcore.calls import Call, Run
from rewardcore.failures import (
    BrokenReply,
    ConnectionFailed,
    DeadlinePassed,
    Denied,
    Disconnected,
    Failure,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    Refused,
    Rejected,
    Transient,
    Truncated,
    UnexpectedReply,
    WorkerDied,
)
from rewardcore.http.cache_contents import find
from rewardcore.http.engine import Engine, Flight, GiveUp
from rewardcore.http.pace import Pace
from rewardcore.http.request import RequestBuilder
from rewardcore.http.retry import BASE_DELAY, MAX_RETRIES, Blame
from rewardcore.reply import Answer, Reply
from rewardcore.rubrics.rubric import grade

ENDPOINT = Endpoint("http://127.0.0.1:8000/v1", "judge")
DEADLINE = 300.0
GOOD = Reply("<score>10</score>", {"prompt_tokens": 5, "completion_tokens": 2})


class Echo:
    """A rubric that asks with the sample's response and reads a plain number."""

    def messages(self, sample):
        if sample.response == "poison":
            raise KeyError("poison")
        return [{"role": "user", "content": sample.response}]

    def parse(self, text):
        try:
            return float(text)
        except ValueError:
            raise Unparsed(f"no number in {text!r}") from None


def failed(kind, retry_after=None, reply=None):
    failure = kind(f"{kind.__name__} happened")
    failure.retry_after, failure.reply = retry_after, reply
    return Answer(failure=failure)


class Told(Call):
    """A call that a test can write on."""


class Desk:
    """An engine, its clock, and the calls that were brought to it."""

    def __init__(self, rubric=None, cache=None, limit=60, uniform=lambda: 0.5, max_retries=MAX_RETRIES, **options):
        self.rubric = rubric or Echo()
        builder = RequestBuilder(ENDPOINT, self.rubric)
        pace = Pace(limit, uniform=uniform)
        self.engine = Engine(
            builder, self.rubric, cache or MemoryCache(), pace, uniform=uniform, blame=Blame(max_retries), **options
        )
        self.counters = self.engine.stats
        self.now = 0.0

    def call(self, *responses, deadline=DEADLINE, run=None, draws=()):
        numbered = itertools.zip_longest(responses, draws, fillvalue=0)
        samples = [Sample("p", str(response), draw=draw) for response, draw in numbered]
        told, done = {}, []

        def tell(index, verdict):
            assert index not in told, "a sample has one verdict"
            told[index] = verdict

        call = Told(enumerate(samples), self.now + deadline, tell, lambda: done.append(True), run)
        call.told, call.done = told, done
        self.engine.open(call)
        return call

    def take(self):
        return self.engine.take(self.now)

    def flight(self):
        flight = self.take()
        assert isinstance(flight, Flight)
        return flight

    def flights(self):
        return list(itertools.takewhile(lambda step: isinstance(step, Flight), iter(self.take, object())))

    def given_up(self):
        step = self.take()
        assert isinstance(step, GiveUp)
        return step.flight

    def idle(self):
        """Nothing can be sent or given up now; whatever was overdue has its verdict."""
        return isinstance(self.take(), float)

    def settle(self, flight, answer):
        self.engine.settle(flight, answer, self.now)

    def reply(self, flight, text="1"):
        self.settle(flight, grade(self.rubric, Reply(text, {"prompt_tokens": 5, "completion_tokens": 2})))

    def drive(self, answer, until=math.inf):
        """One request at a time until nothing is left; `answer` makes an answer of a flight, and takes a second."""
        while (step := self.take()) != math.inf:
            if isinstance(step, Flight):
                self.now += 1.0
                self.settle(step, answer(step))
            else:
                self.now += step
            if self.now >= until:
                return


def asked(flight):
    return flight.request.body.decode().split('"content":"')[1].split('"')[0]


@pytest.fixture
def desk():
    return Desk()


def test_one_verdict_per_sample_under_its_own_index(desk):
    call = desk.call(*range(10))
    flights = desk.flights()
    assert len(flights) == 10
    for flight in reversed(flights):
        desk.reply(flight, asked(flight))
    assert [call.told[index].score for index in range(10)] == [float(index) for index in range(10)]
    assert call.done == [True]
    assert desk.idle()


def test_a_verdict_tells_text_usage_latency_and_cost(desk):
    call = desk.call("a")
    flight = desk.flight()
    desk.now = 2.5
    desk.reply(flight, "0.25")
    verdict = call.told[0]
    assert (verdict.status, verdict.score, verdict.text, verdict.error) == ("ok", 0.25, "0.25", None)
    assert (verdict.cached, verdict.attempts, verdict.latency) == (False, 1, 2.5)
    assert verdict.usage == {"prompt_tokens": 5, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Rejected, "failed"),
        (UnexpectedReply, "failed"),
        (DeadlinePassed, "timeout"),
        (Refused, "refused"),
        (Truncated, "truncated"),
        (Unparsed, "unparsed"),
        (Failure, "failed"),
    ],
)
def test_a_final_failure_is_its_samples_alone_and_never_a_number(desk, kind, status):
    call = desk.call("a", "b", "c")
    first, second, third = desk.flights()
    desk.reply(first)
    desk.settle(second, failed(kind))
    desk.reply(third)
    assert [call.told[index].status for index in range(3)] == ["ok", status, "ok"]
    assert (call.told[1].score, call.told[1].attempts) == (None, 1)
    assert call.told[1].error == f"{kind.__name__}: {kind.__name__} happened"
    assert desk.counters.failed == {kind.__name__: 1}


def test_a_sample_that_the_rubric_cannot_write_fails_alone_and_costs_nothing(desk):
    call = desk.call("a", "poison", "b")
    for flight in desk.flights():
        desk.reply(flight)
    assert [call.told[index].status for index in range(3)] == ["ok", "failed", "ok"]
    assert "KeyError: 'poison'" in call.told[1].error
    assert desk.counters.requests == 2


def test_many_samples_that_need_no_request_let_the_loop_breathe(desk):
    call = desk.call(*["poison"] * 100, "a")
    steps = [desk.take() for _ in range(4)]
    assert steps[:3] == [0.0, 0.0, 0.0]
    assert isinstance(steps[3], Flight)
    assert len(call.told) == 100


def test_calls_take_turns(desk):
    desk.call("a1", "a2", "a3")
    desk.call("b1", "b2", "b3")
    assert [asked(flight) for flight in desk.flights()] == ["a1", "b1", "a2", "b2", "a3", "b3"]


# Coalescing, draws and the cache.


def test_identical_requests_in_flight_are_sent_once_and_shared(desk):
    call = desk.call("a", "a", "b", "a")
    flights = desk.flights()
    assert [asked(flight) for flight in flights] == ["a", "b"]
    for flight in flights:
        desk.reply(flight)
    assert [call.told[index].score for index in range(4)] == [1.0] * 4
    assert [call.told[index].attempts for index in range(4)] == [1, 0, 1, 0]
    assert (desk.counters.requests, desk.counters.coalesced) == (2, 2)


def test_identical_requests_of_two_calls_are_shared(desk):
    one, other = desk.call("a"), desk.call("a")
    (flight,) = desk.flights()
    desk.reply(flight)
    assert (one.told[0].score, other.told[0].score) == (1.0, 1.0)
    assert (one.told[0].attempts, other.told[0].attempts) == (1, 0)


def test_a_failure_is_shared_as_well_and_counted_for_each_sample(desk):
    call = desk.call("a", "a")
    desk.settle(desk.flights()[0], failed(Rejected))
    assert [call.told[index].status for index in range(2)] == ["failed", "failed"]
    assert desk.counters.failed == {"Rejected": 2}


def test_another_draw_is_another_request_and_the_same_draw_is_shared(desk):
    one, other = desk.call("a", "a", "a", draws=[7, 0, 7]), desk.call("a", "a", draws=[7, 3])
    flights = desk.flights()
    assert sorted(flight.request.draw for flight in flights) == [0, 3, 7]
    for flight in flights:
        desk.reply(flight, str(flight.request.draw))
    assert [one.told[index].score for index in range(3)] == [7.0, 0.0, 7.0]
    assert [other.told[index].score for index in range(2)] == [7.0, 3.0]
    assert desk.counters.coalesced == 2


def test_every_draw_is_found_again_in_the_cache_in_whatever_order_they_come(desk):
    """A run that goes on asks for what was left, in another order, and more of each."""
    desk.call("a", "a", draws=[0, 2])
    for flight in desk.flights():
        desk.reply(flight, str(flight.request.draw))
    again = desk.call("a", "a", "a", "a", draws=[3, 2, 1, 0])
    assert [flight.request.draw for flight in desk.flights()] == [3, 1]
    assert {index: (verdict.score, verdict.cached) for index, verdict in again.told.items()} == {
        1: (2.0, True),
        3: (0.0, True),
    }


def test_a_reply_is_paid_for_once(desk):
    desk.call("a")
    desk.reply(desk.flight(), "0.5")
    again = desk.call("a")
    assert desk.idle()
    verdict = again.told[0]
    assert (verdict.score, verdict.cached, verdict.attempts, verdict.usage["prompt_tokens"]) == (0.5, True, 0, 5)
    assert (desk.counters.requests, desk.counters.cached) == (1, 1)


def test_an_old_reply_is_read_by_the_parser_of_today():
    cache = MemoryCache()
    before = Desk(cache=cache)
    before.call("a")
    before.reply(before.flight(), "seven")

    class Better(Echo):
        def parse(self, text):
            return 0.7

    after = Desk(Better(), cache)
    call = after.call("a")
    assert after.idle()
    assert (call.told[0].score, call.told[0].cached) == (0.7, True)


NEVER_STORED = [
    failed(Refused, reply=Reply("I will not")),
    failed(Truncated, reply=Reply("<score>10</score> and th")),
    failed(Unparsed, reply=Reply("")),
    failed(UnexpectedReply),
    failed(Rejected),
    failed(Denied),
    failed(DeadlinePassed),
    failed(Failure),
]


@pytest.mark.parametrize("answer", NEVER_STORED, ids=lambda answer: answer.failure.kind)
def test_no_failure_refusal_or_truncated_reply_is_ever_stored(tmp_path, answer):
    cache = SqliteCache(tmp_path / "judge.sqlite")
    desk = Desk(cache=cache)
    call = desk.call("a")
    desk.settle(desk.flight(), answer)
    assert call.told[0].score is None
    desk.call("a")
    assert isinstance(desk.take(), Flight)
    cache.close()
    assert find(cache.path) == []


def test_a_failed_reply_is_shown_and_counted_though_it_is_not_stored(desk):
    call = desk.call("a")
    desk.settle(desk.flight(), failed(Truncated, reply=Reply("half", {"completion_tokens": 77})))
    assert (call.told[0].text, call.told[0].usage) == ("half", {"completion_tokens": 77})
    assert desk.counters.completion_tokens == 77


def test_a_cached_reply_goes_to_disk_with_the_material_of_its_key(tmp_path):
    cache = SqliteCache(tmp_path / "judge.sqlite")
    desk = Desk(cache=cache)
    desk.call("a")
    flight = desk.flight()
    desk.reply(flight, "0.5")
    cache.close()
    ((key, text, material, _),) = find(cache.path)
    assert (bytes.fromhex(key), text) == (flight.request.key, "0.5")
    assert material == desk.engine.builder.material(flight.request)


# Retries.


@pytest.mark.parametrize(
    ("kind", "wait"),
    [(kind, BASE_DELAY / 2) for kind in (Transient, RateLimited, ConnectionFailed, BrokenReply, WorkerDied)],
)
def test_a_failure_that_may_pass_is_tried_again_later(desk, kind, wait):
    """One failure says nothing of the endpoint: the pause is the sample's own."""
    call = desk.call("a")
    desk.settle(desk.flight(), failed(kind))
    assert call.told == {}
    assert desk.take() == pytest.approx(wait)
    desk.now += wait
    desk.reply(desk.flight(), "1")
    assert (call.told[0].score, call.told[0].attempts) == (1.0, 2)
    assert (desk.counters.requests, desk.counters.retried) == (2, 1)


def test_parked_retries_come_back_in_the_order_of_their_time():
    waits = iter([0.9, 0.1, 0.5])
    desk = Desk(uniform=lambda: next(waits))
    desk.call("a", "b", "c", "d")
    for flight in desk.flights()[:3]:
        desk.settle(flight, failed(Transient))
    order = []
    while len(order) < 3:
        step = desk.take()
        if isinstance(step, Flight):
            order.append(asked(step))
        else:
            desk.now += step
    assert order == ["b", "c", "a"]


def test_fresh_samples_go_out_while_retries_wait(desk):
    desk.call("a", "b")
    desk.settle(desk.flight(), failed(Transient, retry_after=100.0))
    assert asked(desk.flight()) == "b"


def test_an_endpoint_that_refuses_all_there_is_in_flight_is_left_alone_until_it_asked(desk):
    """Else every other sample would run into the same rate limit, one by one."""
    desk.call("a", "b")
    desk.settle(desk.flight(), failed(RateLimited, retry_after=100.0))
    assert 100.0 <= desk.take() < 101.0


def test_one_refusal_among_requests_in_flight_does_not_stop_the_others(desk):
    """But for the moment in which the rest of its burst is heard."""
    desk.call("a", "b", "c")
    refused, other = desk.flight(), desk.flight()
    desk.settle(refused, failed(RateLimited, retry_after=100.0))
    desk.reply(other)
    assert desk.take() <= 0.02
    desk.now += 0.02
    assert asked(desk.flight()) == "c"


def test_a_call_whose_deadline_passed_before_anyone_looked_is_not_sent(desk):
    call = desk.call("a", "b")
    desk.now = call.deadline
    assert desk.idle()
    assert [verdict.status for verdict in call.told.values()] == ["timeout", "timeout"]


def test_an_overdue_call_does_not_hold_up_what_another_has_prepared(desk):
    """The other call's samples were looked at ahead of time, so only prepared flights are left of it."""
    desk.call("b1", "b2", "b3", deadline=100.0)
    assert asked(desk.flight()) == "b1"
    desk.call("a", deadline=1.0)
    desk.now = 2.0
    assert [asked(flight) for flight in desk.flights()] == ["b2", "b3"]


def test_the_calls_of_a_stream_share_the_breaker(desk):
    run = Run()
    first = desk.call("a", run=run)
    desk.settle(desk.flight(), failed(Denied))
    assert first.told[0].status == "failed"
    desk.call("b", run=run)
    assert desk.idle()
    desk.call("b")
    assert asked(desk.flight()) == "b"


def test_a_stale_connection_is_tried_again_at_once_and_free_of_charge(desk):
    call = desk.call("a")
    desk.settle(desk.flight(), failed(Disconnected))
    flight = desk.flight()
    assert flight.faults == ()
    desk.reply(flight)
    assert call.told[0].attempts == 2


def drive_beside_others(desk, answer):
    """A sample that gets this answer always, while others get through."""
    call = desk.call("unlucky", *range(40))
    desk.drive(lambda flight: answer if asked(flight) == "unlucky" else Answer(GOOD, 1.0))
    return call.told[0]


def test_a_connection_that_is_always_closed_for_one_sample_alone_is_given_up(desk):
    verdict = drive_beside_others(desk, failed(Disconnected))
    assert verdict.status == "failed"
    assert MAX_RETRIES + 1 < verdict.attempts <= MAX_RETRIES + 3


@pytest.mark.parametrize("kind", [Transient, Overloaded, BrokenReply, ConnectionFailed])
@pytest.mark.parametrize("limit", [1, 8, 60])
def test_what_fails_for_one_sample_alone_is_final_after_a_few_attempts(kind, limit):
    """Also once all others are done: the last one of a batch has none beside it."""
    verdict = drive_beside_others(Desk(limit=limit), failed(kind))
    assert verdict.status == "failed"
    assert MAX_RETRIES < verdict.attempts <= MAX_RETRIES + 3


@pytest.mark.parametrize("kind", [Transient, Overloaded, ConnectionFailed])
def test_what_a_worker_made_of_it_does_not_say_that_the_endpoint_answers(kind):
    """A bare Failure is our own machine's: who fails meanwhile may have met an outage."""
    desk = Desk(limit=4)
    call = desk.call("asked", *range(40))

    def answer(flight):
        if asked(flight) == "asked":
            return failed(kind) if desk.now < 0.5 * DEADLINE else Answer(GOOD, 1.0)
        return failed(Failure)

    desk.drive(answer)
    assert [call.told[index].status for index in (0, 1)] == ["ok", "failed"]


@pytest.mark.parametrize("max_retries", [0, 1, 10])
def test_max_retries_says_how_often_a_sample_that_fails_by_itself_is_tried_again(max_retries):
    verdict = drive_beside_others(Desk(limit=8, max_retries=max_retries), failed(BrokenReply))
    assert (verdict.status, verdict.attempts) == ("failed", max_retries + 1)


@pytest.mark.parametrize("max_retries", [0, 10])
def test_an_outage_counts_no_attempt_however_few_there_may_be(max_retries):
    desk = Desk(uniform=random.Random(0).random, max_retries=max_retries)
    call = desk.call(*range(3))
    desk.drive(lambda flight: failed(Transient) if desk.now < 0.5 * DEADLINE else Answer(GOOD, 1.0))
    assert {verdict.status for verdict in call.told.values()} == {"ok"}


@pytest.mark.parametrize("kind", [Transient, Overloaded, RateLimited, ConnectionFailed])
@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("has_answered", [False, True])
def test_an_outage_is_waited_out_until_the_deadline(kind, size, has_answered):
    """However many samples meet it, whatever tells of it, at the start or later; then all are judged."""
    desk = Desk(uniform=random.Random(0).random)
    if has_answered:
        desk.call("before")
        desk.reply(desk.flight())
    call = desk.call(*range(size))
    desk.drive(lambda flight: failed(kind) if desk.now < 0.5 * DEADLINE else Answer(GOOD, 1.0))
    assert {verdict.status for verdict in call.told.values()} == {"ok"}
    assert desk.counters.requests <= 2 * size + 70, "growing pauses"


def test_while_nothing_gets_through_one_probe_goes_out_at_a_time(desk):
    desk.call(*range(100))
    for flight in desk.flights():
        desk.settle(flight, failed(Transient))
    for _ in range(5):
        desk.now += desk.take()
        probe = desk.flight()
        assert desk.idle()
        desk.now += 1.0
        desk.settle(probe, failed(Transient))


def test_at_a_rate_limit_the_deadline_decides(desk):
    call = desk.call("a")
    desk.drive(lambda flight: failed(RateLimited))
    assert call.told[0].status == "timeout"
    assert call.told[0].attempts > 3 * MAX_RETRIES
    assert desk.now <= DEADLINE + 1.0


def test_what_the_endpoint_asks_for_is_waited_for(desk):
    desk.call("a")
    desk.settle(desk.flight(), failed(RateLimited, retry_after=42.0))
    assert 42.0 <= desk.take() <= 42.8


def test_a_wait_past_the_deadline_fails_the_sample_at_once_and_says_so(desk):
    call = desk.call("a", "b")
    first, second = desk.flights()
    desk.settle(first, failed(RateLimited, retry_after=86400.0))
    assert call.told[0].status == "failed"
    assert "asked to wait 86400 s, which is past the deadline" in call.told[0].error
    desk.reply(second)
    assert call.told[1].status == "ok"


def test_a_backoff_past_the_deadline_ends_there_and_tells_of_the_last_attempt(desk):
    call = desk.call("a", deadline=1.0)
    flight = desk.flight()
    desk.now = 0.9
    desk.settle(flight, failed(Transient))
    desk.now += desk.take()
    assert desk.now == 1.0
    desk.take()
    assert call.told[0].status == "timeout"
    assert call.told[0].error.startswith("DeadlinePassed: not judged before the deadline")
    assert "Transient happened" in call.told[0].error


@pytest.mark.parametrize("kind", [RateLimited, Overloaded])
def test_a_burst_of_refusals_cuts_to_what_is_still_in_the_air(kind):
    desk = Desk(limit=10)
    call = desk.call(*range(30))
    flights = desk.flights()
    desk.now = 0.1
    for flight in flights[4:]:
        desk.settle(flight, failed(kind))
    assert desk.engine.pace.window == 4
    desk.now = 1.0
    for flight in flights[:4]:
        desk.reply(flight)
    desk.drive(lambda flight: Answer(GOOD, 1.0))
    assert {verdict.status for verdict in call.told.values()} == {"ok"}
    assert desk.engine.pace.window >= 4


@pytest.mark.parametrize("limit", [8, 60])
@pytest.mark.parametrize("kind", [Transient, Overloaded, ConnectionFailed])
@pytest.mark.parametrize("slow", [0.001, 1.0])
def test_in_a_lasting_storm_retries_are_a_tenth_of_the_traffic(limit, kind, slow):
    desk = Desk(limit=limit, uniform=random.Random(0).random)
    call = desk.call(*range(2000), deadline=1e9)
    in_the_air = []
    while desk.counters.requests < 500:
        step = desk.take()
        if isinstance(step, Flight):
            in_the_air.append((desk.now + slow, step))
        elif in_the_air and in_the_air[0][0] <= desk.now + step:
            desk.now, flight = in_the_air.pop(0)
            desk.settle(flight, failed(kind))
        else:
            desk.now += step
    assert desk.counters.retried <= 0.1 * desk.counters.requests
    for _, flight in in_the_air:
        desk.reply(flight)
    desk.drive(lambda flight: grade(desk.rubric, Reply("1")))
    assert sum(verdict.status == "ok" for verdict in call.told.values()) == 2000


def test_after_a_storm_the_window_is_as_before_with_the_first_that_gets_through():
    desk = Desk(limit=500)
    desk.call(*range(600), deadline=1e9)
    for flight in desk.flights():
        desk.settle(flight, failed(Transient))
    assert desk.engine.pace.window == 1
    desk.now += desk.take()
    desk.reply(desk.flight())
    assert desk.engine.pace.window == 500


# The breaker.


@pytest.mark.parametrize("kind", [Denied, QuotaExhausted])
def test_a_denied_key_stops_the_rest_of_the_run(desk, kind, caplog):
    call = desk.call(*range(50))
    with caplog.at_level(logging.ERROR, logger="rewardcore"):
        desk.settle(desk.flight(), failed(kind))
        desk.drive(lambda flight: pytest.fail("a request was sent"))
    assert sorted(call.told) == list(range(50))
    assert [verdict.status for verdict in call.told.values()] == ["failed"] * 50
    assert {verdict.error for verdict in call.told.values()} == {f"{kind.__name__}: {kind.__name__} happened"}
    assert desk.counters.requests == 1
    assert len(caplog.records) == 1


def test_the_breaker_ends_parked_retries_at_once(desk):
    call = desk.call("a", "b")
    first, second = desk.flights()
    desk.settle(first, failed(RateLimited, retry_after=200.0))
    desk.settle(second, failed(Denied))
    assert desk.idle()
    assert call.told[0].error.startswith("Denied")
    assert desk.now == 0.0


def test_replies_already_in_the_air_still_count_after_the_breaker(desk):
    call = desk.call("a", "b", "c")
    first, second, third = desk.flights()
    desk.settle(first, failed(Denied))
    desk.reply(second)
    desk.settle(third, failed(Transient))
    desk.take()
    assert [call.told[index].status for index in range(3)] == ["failed", "ok", "failed"]


def test_the_cache_answers_though_the_breaker_is_open(desk):
    desk.call("a")
    desk.reply(desk.flight())
    call = desk.call("b", "a")
    desk.settle(desk.flight(), failed(Denied))
    desk.take()
    assert [call.told[index].status for index in range(2)] == ["failed", "ok"]


def test_the_next_run_asks_again(desk):
    """Also when the sample that opened the breaker was the last one, and nobody took another step."""
    desk.call("a")
    desk.settle(desk.flight(), failed(Denied))
    call = desk.call("b")
    desk.reply(desk.flight())
    assert call.told[0].status == "ok"


def test_the_next_run_asks_again_though_late_replies_of_the_last_are_in_the_air(desk):
    desk.call("a", "b", deadline=10.0)
    _, second = desk.flights()
    desk.settle(second, failed(Denied))
    desk.now = 10.0
    assert desk.idle()
    desk.call("c")
    assert asked(desk.flight()) == "c"


def test_a_call_that_begins_while_a_stopped_one_still_waits_asks_for_itself(desk):
    stopped = desk.call("a", "b", "c")
    first, second, _ = desk.flights()
    desk.settle(second, failed(Denied))
    later = desk.call("d", "e")
    desk.reply(desk.flight())
    desk.settle(desk.flight(), failed(Rejected))
    assert [verdict.status for verdict in later.told.values()] == ["ok", "failed"]
    desk.reply(first)
    assert (sorted(stopped.told), stopped.told[0].status) == ([0, 1], "ok")


def test_a_later_call_that_has_joined_a_request_of_a_stopped_one_is_asked_again_for(desk):
    stopped = desk.call("a", "b")
    first, second = desk.flights()
    desk.settle(second, failed(Denied))
    later = desk.call("a")
    assert desk.idle()
    desk.settle(first, failed(Transient))
    assert [verdict.error.partition(":")[0] for verdict in stopped.told.values()] == ["Denied"] * 2
    desk.now += desk.take()
    desk.reply(desk.flight())
    assert later.told[0].status == "ok"


# Deadlines, abandoned calls, close.


def test_what_is_not_judged_by_the_deadline_is_a_timeout(desk):
    call = desk.call("done", "in the air", "parked", "fresh", deadline=10.0)
    done, _, parked = (desk.flight() for _ in range(3))
    desk.reply(done)
    desk.settle(parked, failed(RateLimited, retry_after=5.0))
    desk.now = 10.0
    assert desk.idle()
    assert [call.told[index].status for index in range(4)] == ["ok", "timeout", "timeout", "timeout"]
    assert [call.told[index].attempts for index in range(4)] == [1, 1, 1, 0]
    assert "not judged before the deadline" in call.told[1].error
    assert "the last attempt: RateLimited happened" in call.told[2].error
    assert "last attempt" not in call.told[3].error
    assert call.done == [True]
    desk.take()
    assert desk.engine._parked.next() == math.inf


def test_a_timeout_tells_of_its_own_last_attempt_not_of_another_calls(desk):
    one, other = desk.call("a"), desk.call("b", deadline=10.0)
    first, _ = desk.flights()
    desk.settle(first, failed(RateLimited, retry_after=50.0))
    desk.now = 10.0
    assert desk.idle()
    assert "last attempt" not in other.told[0].error
    assert one.told == {}


def test_a_late_reply_still_reaches_the_cache(desk):
    call = desk.call("a", deadline=10.0)
    flight = desk.flight()
    desk.now = 10.0
    assert desk.idle()
    desk.now = 12.0
    desk.reply(flight, "0.5")
    assert call.told[0].status == "timeout"
    again = desk.call("a")
    assert desk.idle()
    assert (again.told[0].score, again.told[0].cached) == (0.5, True)


def test_nothing_is_retried_for_a_call_that_is_over(desk):
    desk.call("a", deadline=10.0)
    flight = desk.flight()
    desk.now = 10.0
    assert desk.idle()
    desk.settle(flight, failed(Transient))
    assert desk.idle()
    assert not desk.engine._flights


def test_a_follower_with_a_longer_deadline_is_served_after_the_first_call_is_over(desk):
    first = desk.call("a", deadline=10.0)
    flight = desk.flight()
    second = desk.call("a", deadline=100.0)
    assert desk.idle()
    assert flight.deadline == 100.0
    desk.now = 10.0
    assert desk.idle()
    desk.settle(flight, failed(RateLimited, retry_after=20.0))
    while not isinstance(again := desk.take(), Flight):
        desk.now += again
    assert again is flight
    assert desk.now >= 30.0
    desk.reply(flight)
    assert (first.told[0].status, first.told[0].attempts) == ("timeout", 1)
    assert (second.told[0].status, second.told[0].attempts) == ("ok", 1)
    assert desk.counters.requests == 2


def test_a_follower_of_an_abandoned_call_is_served_and_pays(desk):
    first = desk.call("a")
    flight = desk.flight()
    second = desk.call("a")
    desk.take()
    desk.engine.abandon(first, desk.now)
    desk.reply(flight)
    assert first.told == {}
    assert (second.told[0].status, second.told[0].attempts) == ("ok", 1)


def test_nobody_is_told_of_an_abandoned_call_and_nothing_more_is_sent_for_it(desk):
    call = desk.call("a", "b", "c", "d")
    in_the_air, parked = desk.flight(), desk.flight()
    desk.settle(parked, failed(Transient))
    desk.engine.abandon(call, desk.now)
    desk.now += 10.0
    assert desk.idle()
    desk.reply(in_the_air, "0.5")
    assert (call.told, call.done) == ({}, [])
    assert desk.counters.requests == 2
    assert not desk.engine._flights
    assert desk.call("a").told == {}
    assert desk.idle()
    assert desk.counters.cached == 1


def test_close_gives_every_waiting_sample_its_verdict(desk):
    calls = [desk.call("done", "in the air", "parked", "fresh"), desk.call("in the air", "poison", "fresh too")]
    flights = [desk.flight() for _ in range(3)]
    assert [asked(flight) for flight in flights] == ["done", "in the air", "parked"]
    desk.reply(flights[0])
    desk.settle(flights[2], failed(Transient))
    desk.engine.close(desk.now)
    assert [len(call.told) for call in calls] == [4, 3]
    assert [call.done for call in calls] == [[True], [True]]
    assert {verdict.status for call in calls for verdict in call.told.values()} == {"ok", "failed"}
    assert "JudgeClosed" in calls[0].told[3].error
    attempts = [verdict.attempts for call in calls for verdict in call.told.values()]
    assert sum(attempts) == desk.counters.requests == 3
    assert desk.idle()


@pytest.mark.parametrize("answer", [Answer(GOOD, 1.0), failed(Transient), failed(Denied), failed(Rejected)])
def test_an_answer_after_close_changes_nothing(desk, answer):
    call = desk.call("a")
    flight = desk.flight()
    desk.engine.close(desk.now)
    before = call.told[0]
    desk.settle(flight, answer)
    assert call.told[0] is before
    assert desk.idle()
    assert desk.counters.in_flight == 0


# Everything at once.

ANSWERS = [
    *[None] * 6,  # a good reply
    *[failed(kind) for kind in (Transient, RateLimited, ConnectionFailed, Disconnected, BrokenReply, WorkerDied)],
    *[failed(kind) for kind in (Rejected, Refused, Truncated, UnexpectedReply, DeadlinePassed)],
    failed(RateLimited, retry_after=2.0),
    failed(RateLimited, retry_after=1e5),
    failed(Denied),
]


@settings(max_examples=80)
@given(st.randoms(use_true_random=False), st.booleans())
def test_whatever_happens_there_is_one_verdict_per_sample_and_the_counters_add_up(dice, close_early):
    desk = Desk(uniform=dice.random)
    calls, air = [], []

    def take():
        step = desk.take()
        if isinstance(step, Flight):
            air.append(step)
        elif isinstance(step, GiveUp):
            air.remove(step.flight)
            desk.engine.gone(step.flight)
        return step

    for step in range(300):
        action = dice.randrange(10)
        if action == 0 and len(calls) < 6:
            responses = [
                dice.choice(["a", "b", "c", "poison", f"unique {step} {i}"]) for i in range(dice.randint(1, 8))
            ]
            draws = dice.choices([0, 0, 1], k=len(responses))
            calls.append(desk.call(*responses, deadline=dice.choice([1.0, 20.0, 1000.0]), draws=draws))
            calls[-1].size = len(responses)
        elif action < 5:
            take()
        elif action < 8 and air:
            flight, answer = air.pop(dice.randrange(len(air))), dice.choice(ANSWERS)
            if answer is None:
                desk.reply(flight, dice.choice(["1", "0.5", "no number"]))
            else:
                desk.settle(flight, answer)
        else:
            desk.now += dice.random()
        assert desk.counters.in_flight == len(air)
    if close_early:
        desk.engine.close(desk.now)
    while air or not close_early:
        if air:
            desk.reply(air.pop())
        elif (taken := take()) == math.inf:
            break
        elif isinstance(taken, float):
            desk.now += taken
    verdicts = [verdict for call in calls for verdict in call.told.values()]
    assert [len(call.told) for call in calls] == [call.size for call in calls]
    assert all(call.done == [True] for call in calls)
    assert sum(verdict.attempts for verdict in verdicts) == desk.counters.requests
    assert sum(verdict.status != "ok" for verdict in verdicts) == sum(desk.counters.failed.values())
    assert sum(verdict.cached for verdict in verdicts) == desk.counters.cached
    assert all((verdict.score is None) == (verdict.status != "ok") for verdict in verdicts)
    assert (desk.counters.in_flight, desk.engine._flights, desk.engine._late, desk.engine._dying) == (0, {}, {}, 0)
    assert (desk.engine._parked.next(), desk.engine._deadlines.next()) == (math.inf, math.inf)


def test_the_template_rubrics_go_through_the_engine_as_any_other():
    desk = Desk(rubrics.QUALITY)
    call = desk.call("a response", "{ground_truth}")
    for flight in desk.flights():
        desk.settle(flight, grade(desk.rubric, GOOD))
    assert [call.told[index].score for index in range(2)] == [1.0, 1.0]

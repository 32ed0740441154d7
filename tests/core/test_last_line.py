"""What nobody expected: it fails the samples that it belongs to, with its reason, is told once, and judging goes on."""

import itertools
import logging
import math
import sys
import threading

import pytest

from rewardcore import MemoryCache, Verdict
from rewardcore.failures import QuotaExhausted, RateLimited, Unparsed
from rewardcore.notices import Losses, Tally
from rewardcore.reply import Answer
from rewardcore.words import LONGEST
from tests.core.test_engine import GOOD, Desk


def statuses(call):
    return [call.told[index].status for index in sorted(call.told)]


@pytest.fixture
def desk():
    return Desk(limit=4)


def breaks_once(error):
    """In place of a method: raises the first time."""
    calls = itertools.count()

    def method(original, *arguments):
        if next(calls) == 0:
            raise error
        return original(*arguments)

    return method


def put(monkeypatch, whom, name, method):
    original = getattr(whom, name)
    monkeypatch.setattr(whom, name, lambda *arguments: method(original, *arguments))


@pytest.mark.parametrize("name", ["wait", "departed"])
def test_what_escapes_from_take_fails_every_open_call_and_no_later_one(desk, monkeypatch, lines, name):
    put(monkeypatch, desk.engine.pace, name, breaks_once(ZeroDivisionError("no pace")))
    one, other = desk.call("a", "b"), desk.call("c")
    assert desk.take() == math.inf
    assert statuses(one) + statuses(other) == ["failed"] * 3
    assert one.told[0].error == "Failure: an error inside rewardcore: ZeroDivisionError: no pace"
    assert one.done == other.done == [True]
    (line,) = lines
    assert "please report it: ZeroDivisionError: no pace" in line
    again = desk.call("a")
    desk.drive(lambda flight: Answer(GOOD, 1.0))
    assert statuses(again) == ["ok"]
    assert desk.counters.in_flight == 0
    assert desk.engine._flights == {}


def test_what_escapes_from_settle_fails_the_seats_of_that_flight_alone(desk, monkeypatch, lines):
    put(monkeypatch, desk.engine.pace, "answered", breaks_once(KeyError("no such place")))
    one, other = desk.call("a", "b"), desk.call("a")
    for flight in desk.flights():
        desk.reply(flight)
    assert statuses(one) == ["failed", "ok"]
    assert statuses(other) == ["failed"]
    assert "KeyError: 'no such place'" in other.told[0].error
    assert (len(lines), desk.counters.in_flight) == (1, 0)
    assert desk.take() == math.inf


def test_a_defect_that_stays_is_told_once_and_every_call_ends(desk, monkeypatch, lines):
    def broken(*_):
        raise ZeroDivisionError("no pace")

    monkeypatch.setattr(desk.engine.pace, "answered", broken)
    for _ in range(5):
        call = desk.call(*range(4))
        for flight in desk.flights():
            desk.reply(flight)
        assert statuses(call) == ["failed"] * 4
    assert len(lines) == 1


class Nonsense(MemoryCache):
    def get(self, key):
        return 7


def test_nonsense_out_of_a_cache_fails_its_sample_and_hangs_nobody():
    desk = Desk(cache=Nonsense())
    call = desk.call("a", "b")
    assert desk.take() == math.inf
    assert statuses(call) == ["failed"] * 2


class Speechless(Unparsed):
    def __str__(self):
        raise RuntimeError("no words")


def test_a_failure_that_cannot_say_what_it_is_fails_its_sample_alone(desk):
    call = desk.call("a", "b")
    first, second = desk.flights()
    desk.settle(first, Answer(failure=Speechless()))
    desk.reply(second)
    assert statuses(call) == ["failed", "ok"]


def test_whoever_cannot_be_told_keeps_no_verdict_from_another(desk, lines):
    """Two calls that share a request, and the first one's caller has gone wrong."""
    one, other = desk.call("a"), desk.call("a")

    def raises(*_):
        raise BrokenPipeError("nobody reads")

    one._tell = raises
    (flight,) = desk.flights()
    desk.reply(flight)
    assert statuses(other) == ["ok"]
    assert one.done == [True], "and it ends all the same"
    assert desk.engine._open == {}
    assert "BrokenPipeError: nobody reads" in lines[0]


def test_what_a_rubric_raises_is_never_asked_again_whatever_its_class_says(desk):
    class Sly(Unparsed):
        retryable = opens_breaker = True

    call = desk.call(*range(8))
    desk.settle(desk.flight(), Answer(GOOD, failure=Sly("again, please")))
    desk.drive(lambda flight: Answer(GOOD, 1.0))
    assert statuses(call) == ["unparsed"] + ["ok"] * 7
    assert desk.counters.requests == 8


def test_losses_are_counted_whoever_ends_a_call(lines):
    """Batches end in the judge's thread, streams in their readers'."""
    losses, each, told = Losses(lambda: 0.0), 3000, []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(number):
        try:
            for place in range(each):
                tally = Tally()
                tally.add(Verdict("failed", error=f"Kind{number}{place % 7}: why"))
                losses.ended(tally, 1)
                if place % 5 == 0:
                    losses.flush()
        except Exception as error:
            told.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    losses.flush()
    assert told == []
    assert sum(int(line.split()[0]) for line in lines) == 4 * each


@pytest.mark.parametrize("kind", [Unparsed, RateLimited, QuotaExhausted])
def test_an_errors_words_are_cut_before_anything_masks_them(kind, caplog):
    """To look for keys in a megabyte takes almost a second of the loop."""
    caplog.set_level(logging.DEBUG, "rewardcore")
    desk, masked = Desk(limit=4), []
    engine = desk.engine
    engine.mask = engine._outcomes.mask = lambda text: masked.append(len(text)) or text
    call = desk.call("a", "b")
    flight = desk.flight()
    desk.settle(flight, Answer(failure=kind("x" * 10**6)))
    desk.now = 1e9
    desk.take()
    assert len(call.told) == 2
    assert len(masked) >= 3
    assert max(masked) <= LONGEST + 100
    assert max(len(record.getMessage()) for record in caplog.records) <= LONGEST + 100

"""What a pace tells of itself: each row of its table comes up, and has its reason in plain words."""

import functools
import random
import re

import pytest

from rewardcore.http.pace import AUTO_CEILING
from rewardcore.http.pace.states import TRANSITIONS
from tests.core.pace_world import (
    Ways,
    World,
    a_pace,
    a_second,
    answered,
    at_once,
    by_chance,
    fine,
    probe,
    sent,
    spaced,
    stormy,
    told,
)
from tests.core.test_knee import queueing

#: The state before, the state after and the reason, which together name a row.
ROWS = {
    (before.__name__.lower(), after.__name__.lower(), reason): (before.__name__, kind)
    for (before, kind), (after, reason) in TRANSITIONS.items()
}


def limit(ceiling=60):
    return a_pace(ceiling, random.Random(0).random)


def auto():
    return a_pace(AUTO_CEILING, random.Random(0).random, finds=True)


#: Endpoints, who asks them, and for how many replies.
HISTORIES = {
    "a cap": (limit, lambda: at_once(10), 600),
    "auto meets a cap": (auto, lambda: at_once(80), 2000),
    "auto beside a queue": (auto, lambda: queueing(40), 6000),
    "auto meets an outage at first": (auto, lambda: stormy(fine, (0.0, 0.2)), 500),
    "so many a second": (lambda: limit(200), lambda: spaced(50), 3000),
    "so few a second": (limit, lambda: a_second(1, 0.1), 300),
    "a quota in headers": (limit, lambda: told(20, 20), 1000),
    "chance": (limit, lambda: by_chance(0.1), 3000),
    "chance beside a cap": (limit, lambda: by_chance(0.2, at_once(30)), 6000),
    "chance beside a rate": (lambda: limit(200), lambda: by_chance(0.1, spaced(50)), 3000),
    "two outages": (limit, lambda: stormy(fine, (20.0, 30.0), (60.0, 70.0)), 5000),
    "two outages with refusals": (limit, lambda: stormy(fine, (20, 30), (31, 40), what="refused", seconds=0.5), 3000),
    "500 above so many a second": (lambda: limit(200), lambda: a_second(20, what="broken"), 1500),
}


@functools.cache
def played(name):
    pace, endpoint, replies = HISTORIES[name]
    return World(pace(), endpoint()).run(replies=replies, until=3000.0)


def lifted():
    world = World(limit(200), spaced(50)).run(replies=2000)
    world.endpoint = fine
    return world.run(replies=8000).ways


def never_there():
    """Eight fail one after the other, and nothing is in the air any more."""
    pace = auto()
    ways = Ways(pace)
    for others, number in zip(range(7, -1, -1), sent(pace, 8), strict=True):
        pace.failed(number, 0.1, others)
    probe(pace, 0.1, "fine")
    return ways.look()


def stormy_rate():
    world = World(limit(200), spaced(50)).run(replies=2000)
    world.endpoint = stormy(world.endpoint, (world.now, world.now + 10.0), what="refused")
    return world.run(replies=3000).ways


def alone_and_lost(pace, ways):
    """One after the other, and nothing gets through."""
    for now in range(2, 8):
        pace.failed(*sent(pace, 1, float(now)), now + 0.5, 0)
    return ways.look()


def a_limit_before_anybody_has_answered():
    pace = auto()
    ways = Ways(pace)
    for others, number in zip(range(7, 1, -1), sent(pace, 8)[2:], strict=True):
        pace.refused(number, 0.1, others, True)
    return ways.look()


def test_every_row_of_the_table_comes_up():
    assert len(ROWS) == len(TRANSITIONS), "a row is known by its states and its reason"
    ways = [*(played(name).ways for name in HISTORIES), lifted(), never_there(), stormy_rate()]
    ways += [a_limit_before_anybody_has_answered()]
    pace = auto()
    ways += [alone_and_lost(pace, Ways(pace)), World(a_pace(), told(20, 50)).run(replies=300).ways]
    taken = set().union(*(way.taken for way in ways))
    assert taken <= ROWS.keys()
    assert sorted(ROWS[row] for row in ROWS.keys() - taken) == []


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row[0].__name__}-{row[1]}")
def test_every_reason_is_a_short_sentence_for_people(row):
    _, reason = TRANSITIONS[row]
    assert 3 <= len(reason.split()) <= 20
    assert len(reason) <= 90, "it fits a line"
    assert re.fullmatch(r"[A-Za-z0-9 ,:?'-]+", reason), "words, and no names of the code"


@pytest.mark.parametrize("name", HISTORIES)
def test_the_last_ten_changes_are_kept_and_told_in_their_order(name):
    pace = played(name).pace
    changes = pace.told.changes
    assert changes == tuple(pace.changes)
    assert len(changes) <= 10
    assert [change.time for change in changes] == sorted(change.time for change in changes)
    assert changes[-1].state == pace.told.state
    assert changes[-1].allowed


@pytest.mark.parametrize(
    ("pace", "words"),
    [
        (limit, "window: 60 at once"),
        (auto, "start: 8 at once"),
        (lambda: played("so few a second").pace, r"window: one every [0-9]+\.[0-9] s"),
        (lambda: never_there().pace, "window: [0-9]+ at once"),
    ],
)
def test_what_is_allowed_is_said_in_words(pace, words):
    assert re.fullmatch(words, str(pace().told).splitlines()[0])


def test_an_outage_is_said_in_words():
    pace = answered(limit(), 60)
    for others, number in zip(range(59, -1, -1), sent(pace, 60, 2.0), strict=True):
        pace.failed(number, 2.1, others)
    first, *changes = str(pace.told).splitlines()
    assert re.fullmatch(r"probing: one at a time, after [0-9.]+ s, until it answers or the deadline has passed", first)
    assert "nothing gets through" in changes[-1]

"""What is due when: in order, never what has lost its meaning, and never much more than what has not."""

import bisect
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore.http.timetable import _FEW, Timetable


class Table(Timetable):
    """A timetable of names, of which some are crossed out."""

    def __init__(self, *entries):
        self.crossed_out = set()
        super().__init__(lambda name: name not in self.crossed_out)
        for when, name in entries:
            self.add(when, name)

    def cross_out(self, *names):
        for name in names:
            self.crossed_out.add(name)
            self.lost()

    def all(self):
        found = []
        while (when := self.next()) < math.inf:
            found.append((when, self.pop()))
        return found


def test_entries_come_out_in_the_order_of_their_time():
    table = Table((3.0, "c"), (1.0, "a"), (2.0, "b"))
    assert table.all() == [(1.0, "a"), (2.0, "b"), (3.0, "c")]


def test_entries_of_the_same_time_come_out_in_the_order_in_which_they_came():
    table = Table((1.0, "z"), (1.0, "a"), (0.0, "first"), (1.0, "m"))
    assert [name for _, name in table.all()] == ["first", "z", "a", "m"]


def test_entries_need_not_be_comparable():
    table = Table((1.0, frozenset({1})), (1.0, 1j), (1.0, "a"))
    assert [name for _, name in table.all()] == [frozenset({1}), 1j, "a"]


def test_an_empty_table_is_never_due():
    table = Table()
    assert table.next() == math.inf
    table.add(1.0, "a")
    table.pop()
    assert table.next() == math.inf
    table.add(1.0, "a")
    table.clear()
    assert table.next() == math.inf


@pytest.mark.parametrize("dead", ["abc", "ab", "bc", "b", "a", "c"])
def test_what_is_dead_never_comes_out(dead):
    table = Table((1.0, "a"), (2.0, "b"), (3.0, "c"))
    table.cross_out(*dead)
    assert "".join(name for _, name in table.all()) == "".join(sorted({*"abc"} - {*dead}))


def test_an_entry_may_come_again_after_it_was_taken():
    table = Table((1.0, "a"))
    assert table.all() == [(1.0, "a")]
    table.add(0.5, "a")
    assert table.all() == [(0.5, "a")]


def test_half_at_most_are_dead_and_a_few():
    table = Table(*((float(name), name) for name in range(10_000)))
    for name in range(9_999, 0, -1):  # never the first, where next would find it
        table.cross_out(name)
        assert len(table._entries) <= 2 * name + _FEW + 1
    assert table.all() == [(0.0, 0)]


def test_half_at_most_are_dead_also_when_the_live_ones_are_taken():
    table = Table(*((float(name), name) for name in range(1000)))
    table.cross_out(*range(501, 1000))
    for name in range(500):
        assert table.next() == name
        table.pop()
    assert len(table._entries) <= 2 + _FEW


def test_crossing_out_costs_the_same_however_many_there_are():
    looks = {}
    for count in (1_000, 20_000):
        table, seen = Table(*((1.0, name) for name in range(count))), []
        is_live = table._is_live
        table._is_live = lambda name, seen=seen, is_live=is_live: (seen.append(name), is_live(name))[1]
        table.cross_out(*range(count - 1, -1, -1))
        looks[count] = len(seen) / count
    assert looks[20_000] < 1.5 * looks[1_000] < 4.0


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 9))
def test_it_is_a_sorted_list_of_what_is_alive(seed, deaths):
    dice, table, alive = random.Random(seed), Table(), []
    for name in range(600):
        if dice.randrange(10) < deaths and alive:
            _, dead = alive.pop(dice.randrange(len(alive)))
            table.cross_out(dead)
            assert len(table._entries) - len(alive) <= max(_FEW, len(alive)) + 1
        when = float(dice.randrange(5))
        table.add(when, name)
        bisect.insort(alive, (when, name))  # names grow, so that equal times stay in order of arrival
        if dice.random() < 0.2:
            assert table.next() == alive[0][0]
    assert table.all() == alive

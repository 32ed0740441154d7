"""Failures by chance cost what their repetition costs: our engine beside a plain loop, exact and in virtual time."""

from __future__ import annotations

import functools

import pytest

from bench.profiles import chance
from bench.profiles.__main__ import main
from bench.profiles.drive import Player, new_pace, own_pace, play
from bench.profiles.endpoints import ByChance, Decision, Endpoint
from bench.scenarios import CHANCE, REGISTRY
from rewardcore.http.pace.refusals import Chance

measured = functools.cache(chance.measure)


@pytest.mark.parametrize("case", chance.CASES, ids=lambda case: case.name)
def test_failures_by_chance_cost_what_their_repetition_costs_and_nothing_is_lost(case):
    assert list(chance.misses(case, measured(case))) == []


def test_the_cases_are_every_share_size_status_and_limit_once():
    assert len(set(chance.CASES)) == len(chance.CASES) == 3 * 4 * 2 * 3


def test_a_pace_that_never_overlooks_chance_misses_the_gate(monkeypatch):
    monkeypatch.setattr(Chance, "overlooks", lambda self, sent: False)
    case = chance.Case(0.3, 128, 60, 503)
    assert any("times a plain loop, more than 1.2" in miss for miss in chance.misses(case, chance.measure(case)))


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.3])
@pytest.mark.parametrize("capacity", [None, 80])
def test_who_refuses_by_chance_is_not_asked_ever_more_slowly(share, capacity):
    endpoint = Endpoint(capacity=capacity, refusal=503)
    ideal = sum(own_pace(endpoint, 60)) / (1 - share)
    fixed = play(ByChance(share=share, capacity=capacity, refusal=503), new_pace(60), until=10 * ideal)
    auto = play(ByChance(share=share, capacity=capacity, refusal=503), new_pace("auto"), until=10 * ideal)
    assert fixed.lost == auto.lost == 0
    assert fixed.seconds < ideal / 0.6
    assert auto.seconds < 3 * ideal
    assert max(fixed.makespans[2:]) < 2 * ideal / len(fixed.makespans)


# Strays.


class Strays(Endpoint):
    """Two 503s in all: one in the midst of the first batch, and one when nothing else is in the air any more."""

    def __post_init__(self):
        super().__post_init__()
        self._asked = dict.fromkeys((20, 99), 0)

    def decide(self, sample, now, in_flight):
        if sample in self._asked:
            self._asked[sample] += 1
            if self._asked[sample] == 1:
                return Decision(503, 0.0 if sample == 20 else 3 * self.seconds)
        return super().decide(sample, now, in_flight)


@pytest.mark.parametrize("setting", [60, 1000, "auto"])
def test_two_strays_the_second_a_straggler_leave_no_slow_pace_behind(setting):
    """The next batch is as quick as one at an endpoint that never failed."""
    makespans = {}
    for kind in (Strays, Endpoint):
        player = Player(kind(), new_pace(setting))
        for batch in range(3):
            player.judge(batch, size=100)
        assert player.statuses == {"ok": 300}
        makespans[kind] = player.makespans
    assert makespans[Strays][1:] == pytest.approx(makespans[Endpoint][1:], rel=0.05)
    assert [change.reason for change in player.changes if change.state != "window"] == []


# What a user sees.

FEW = [case for case in chance.CASES if case.size == 32 and case.share == 0.1]


def test_the_command_prints_a_row_for_each_share_and_status(capsys, monkeypatch):
    monkeypatch.setattr(chance, "CASES", FEW)
    assert main(["--chance"]) == 0
    printed = capsys.readouterr()
    title, headings, *rows = printed.out.splitlines()
    assert title == chance.TITLE
    assert headings.split()[:6] == ["32,", "60", "32,", "32", "32,", "auto"]
    assert [row.split()[:3] for row in rows] == [["10%", "answer", "500"], ["10%", "answer", "503"]]
    cells = [float(cell) for row in rows for cell in row.split()[3:]]
    assert cells == [round(measured(case).times_the_loop, 2) for case in FEW]
    assert printed.err == "failures by chance …\n"


def test_a_miss_is_a_sentence_and_exit_code_1(capsys, monkeypatch):
    monkeypatch.setattr(chance, "CASES", FEW[:1])
    monkeypatch.setattr(chance, "GATE", 0.5)
    assert main(["--chance"]) == 1
    assert "missed: 500 for 10%, batches of 32, 60 at once: " in capsys.readouterr().out


def test_chance_plays_no_profile(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--chance", "--profile", "huge"])
    assert "--chance plays no profile: leave out --profile" in capsys.readouterr().err


def test_chance_is_one_exact_scenario_with_the_worst_of_each_share_and_what_was_lost():
    assert REGISTRY["profile-chance"] == CHANCE
    records = chance.records_of(CHANCE, {case: measured(case) for case in FEW})
    found = {record.metric: record.value for record in records}
    assert found["worst at 10%"] == max(measured(case).times_the_loop for case in FEW)
    assert found["lost samples"] == 0
    assert {record.direction for record in records} == {"lower"}

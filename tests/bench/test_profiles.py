"""What the pace promises, at endpoints of every temper: exact figures of the real engine in virtual time."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import math
import random

import pytest

from bench.profiles import plot, report
from bench.profiles.__main__ import main
from bench.profiles.drive import SEED, SIZE, new_pace, own_pace, play
from bench.profiles.endpoints import PROFILES, Bucket, Endpoint, MovingCap, Storms
from bench.scenarios import REGISTRY
from rewardcore.http.pace import AUTO_CEILING, Pace
from rewardcore.http.pace.states import Window
from tests.bench.test_reporting import bench_session

figures_of = functools.cache(lambda name: report.measure(PROFILES[name]))


def may_refuse(name):
    """Buckets and windows are found by asking for a little more than they bear."""
    return 0.05 if "bucket" in name or "window" in name else 0.02


every_profile = pytest.mark.parametrize("name", PROFILES)


# The gates.


@every_profile
def test_auto_reaches_nine_tenths_of_the_best_fixed_setting(name):
    assert figures_of(name).of_the_best >= 0.90


@every_profile
def test_auto_reaches_four_fifths_of_it_in_the_first_batch(name):
    assert figures_of(name).of_its_first >= 0.80


@every_profile
def test_auto_is_hardly_ever_refused(name):
    assert figures_of(name).auto.refused_share <= may_refuse(name)


@every_profile
def test_a_fixed_limit_keeps_to_the_endpoints_own_pace(name):
    """Whether the endpoint bears fewer than the limit, so that it refuses, or more."""
    assert figures_of(name).of_own_pace(60) >= 0.85
    assert figures_of(name).of_own_pace(200) >= 0.85


@every_profile
def test_many_at_once_never_take_longer_than_one(name):
    figures = figures_of(name)
    assert max(figures.auto.seconds, figures.fixed[60].seconds) <= figures.one.seconds


@every_profile
def test_nothing_is_lost(name):
    figures = figures_of(name)
    for played in (figures.auto, figures.best, figures.one, *figures.fixed.values()):
        assert played.statuses == {"ok": 5 * 1024}
        assert played.requests == 5 * 1024 + played.retried == 5 * 1024 + played.refused


@every_profile
def test_the_report_misses_what_these_tests_miss(name):
    """One list of gates for the command, the benchmarks and the tests."""
    figures = figures_of(name)
    is_met = (
        figures.of_the_best >= 0.90
        and figures.of_its_first >= 0.80
        and figures.auto.refused_share <= may_refuse(name)
        and min(figures.of_own_pace(60), figures.of_own_pace(200)) >= 0.85
        and max(figures.auto.seconds, figures.fixed[60].seconds, figures.fixed[200].seconds) <= figures.one.seconds
        and not figures.lost
    )
    assert is_met == (not list(figures.misses()))


def test_the_setting_that_is_called_best_is_the_best():
    """`python -m bench.profiles --sweep` asks it of all; this is the one that moves most with the policy."""
    assert report.sweep(PROFILES["requests-bucket"]) == PROFILES["requests-bucket"].best


# The harness: exact, and it sees a defect.


@pytest.mark.parametrize("name", ["moving-cap", "tokens-bucket", "storms"])
def test_the_same_run_twice_gives_the_same_figures(name):
    again = play(PROFILES[name].open(), new_pace("auto"))
    assert again == figures_of(name).auto


class NeverGrowsBack(Pace):
    def answered(self, number, now, others, seconds=None, tokens=None, quota=None):
        cut, places = getattr(self.state, "cut_after", 0), self.state.window
        super().answered(number, now, others, seconds, tokens, quota)
        if cut:
            self.state.places = min(self.state.places, places)


class IgnoresRefusals(Pace):
    def refused(self, number, now, others, pressed, retry_after=None, quota=None):
        self.answered(number, now, others)


class HalvesAtEachRefusal(Pace):
    def refused(self, number, now, others, pressed, retry_after=None, quota=None):
        super().refused(number, now, others, pressed, retry_after, quota)
        if isinstance(self.state, Window):
            self.state.places = max(1, self.state.places // 2)


class IgnoresQuotas(Pace):
    def answered(self, number, now, others, seconds=None, tokens=None, quota=None):
        super().answered(number, now, others, seconds, tokens)

    def refused(self, number, now, others, pressed, retry_after=None, quota=None):
        super().refused(number, now, others, pressed, retry_after)


@pytest.mark.parametrize(
    ("defect", "name", "miss"),
    [
        (NeverGrowsBack, "moving-cap", "of 80 at once, not 90%"),
        (IgnoresRefusals, "cap-503", "of auto's requests are refused, more than 2%"),
        (HalvesAtEachRefusal, "cap-429", "of 80 at once, not 90%"),
        (IgnoresQuotas, "window-told", "of auto's requests are refused, more than 5%"),
    ],
)
def test_a_planted_defect_misses_a_gate(defect, name, miss):
    whole = figures_of(name)
    assert not list(whole.misses())
    pace = defect(AUTO_CEILING, finds=True, uniform=random.Random(SEED).random)
    broken = dataclasses.replace(whole, auto=play(PROFILES[name].open(), pace, until=1.2 * whole.auto.seconds))
    assert any(miss in said for said in broken.misses())


# The endpoints.


@pytest.mark.parametrize(
    ("name", "seconds"), [("cap-429", 5 * 26.0), ("cap-503", 5 * 26.0), ("tiny", 5 * 1024.0), ("huge", 5 * 4.0)]
)
def test_an_endpoints_own_pace_is_whole_waves(name, seconds):
    assert sum(own_pace(PROFILES[name].open())) == pytest.approx(seconds)


def test_a_buckets_own_pace_is_its_rate():
    """The burst first, then as it refills; it is full again when the last replies are in."""
    first, second, *_ = own_pace(Bucket(rate=50, burst=50))
    assert first == pytest.approx((SIZE - 50) / 50 + 2.0)
    assert second == pytest.approx(first)


@every_profile
def test_nobody_is_quicker_than_the_endpoints_own_pace(name):
    """But for one that slows down under load; a hundredth for the order, which moves the last replies."""
    if name == "saturating":
        return
    figures = figures_of(name)
    quickest = min(figures.auto.seconds, figures.best.seconds, figures.fixed[200].seconds)
    assert quickest >= 0.99 * sum(own_pace(PROFILES[name].open()))


@every_profile
def test_whoever_waits_until_it_opens_is_accepted(name):
    endpoint, now, in_flight = PROFILES[name].open(), 0.0, 0
    for sample in range(3 * SIZE):
        opens_at = endpoint.opens_at(sample, now, in_flight)
        if opens_at > now:
            refused = endpoint.decide(sample, now, in_flight)
            assert refused.status in (429, 500, 503)
            assert refused.seconds == 0.0
        if opens_at == math.inf:
            in_flight = 0
            opens_at = endpoint.opens_at(sample, now, in_flight)
        now = opens_at
        accepted = endpoint.decide(sample, now, in_flight)
        assert accepted.status == 200
        assert accepted.seconds > 0.0
        in_flight += 1


def test_what_is_drawn_belongs_to_the_sample():
    forwards, backwards = Endpoint(spread=0.5), Endpoint(spread=0.5)
    seconds = [forwards.decide(sample, 0.0, 0).seconds for sample in range(100)]
    assert [backwards.decide(sample, 0.0, 0).seconds for sample in reversed(range(100))] == seconds[::-1]


def test_a_cap_says_how_long_to_wait_only_where_it_does():
    assert Endpoint(capacity=1, retry_after=1.0).decide(0, 0.0, 1) == (429, 0.0, 0, (("retry-after", "1"),))
    assert Endpoint(capacity=1, refusal=503).decide(0, 0.0, 1) == (503, 0.0, 0, ())


def test_a_cap_moves_and_a_storm_passes():
    moving, storms = MovingCap(), Storms(capacity=80, refusal=503)
    assert [moving.decide(0, now, 40).status for now in (0.0, 29.9, 30.0, 59.9, 60.0)] == [200, 200, 429, 429, 200]
    assert moving.opens_at(0, 45.0, 60) == 60.0
    assert [storms.decide(0, now, 0).status for now in (0.0, 26.9, 27.0, 29.9, 30.0)] == [200, 200, 500, 500, 200]
    assert storms.opens_at(0, 28.0, 0) == 30.0
    assert storms.decide(0, 30.0, 80).status == 503


# What a user sees.


def test_the_command_prints_its_rows_and_progress_beside_them(capsys):
    assert main(["--profile", "cap-429"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == [report.line(figures_of("cap-429"))]
    assert printed.err == "cap-429 …\n"


def test_the_command_names_the_profiles_there_are(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--profile", "cap"])
    assert "there is no profile 'cap': --profile takes cap-429, " in capsys.readouterr().err


def test_a_plot_without_matplotlib_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        main(["--plot", str(tmp_path)])
    assert "--plot needs matplotlib: pip install rewardcore[report]" in capsys.readouterr().err


def test_a_plot_is_a_picture(tmp_path):
    main(["--profile", "huge", "--plot", str(tmp_path / "deep")])
    assert (tmp_path / "deep" / "huge.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_lists_each_reason_once_with_how_often_it_was_the_reason(tmp_path):
    """Numbered in the order in which they come up; the marks on the curve bear the same numbers."""
    played = figures_of("moving-cap").auto
    numbers = plot._numbers(played)
    assert list(numbers.values()) == list(range(1, len(numbers) + 1))
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    plot._list_reasons(axes, played, numbers)
    (text,) = (one.get_text() for one in axes.texts)
    heading, *lines = text.splitlines()
    assert heading == "Why it changed, and to which state:"
    assert [line.split("  ")[1].split(" → ")[0] for line in map(str.strip, lines)] == list(numbers)


def test_changes_of_a_whole_run_are_kept_in_their_order_not_only_the_last_ten():
    changes = figures_of("moving-cap").auto.changes
    assert len(changes) > 10
    assert [change.time for change in changes] == sorted(change.time for change in changes)


def test_every_profile_is_a_scenario_whose_session_leaves_records(tmp_path):
    assert {f"profile-{name}" for name in PROFILES} <= REGISTRY.keys()
    path = tmp_path / "records.jsonl"
    done = bench_session("-k", "profile-cap-429", f"--records={path}")
    assert done.returncode == 0, done.stdout
    assert report.line(figures_of("cap-429")) in done.stdout[done.stdout.index("── endpoints of every temper") :]
    found = {(r["scenario"], r["metric"]): r for r in map(json.loads, path.read_text().splitlines())}
    assert found["profile-cap-429", "makespan"]["value"] == figures_of("cap-429").auto.seconds
    assert found["profile-cap-429", "of the best fixed setting"]["direction"] == "higher"

"""Promises of the latency model: seeded, independent of order, and as its formula says."""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.testing.latency import Decision, LatencyModel, Profile, fit

SPREAD = Profile(latency=0.5, spread=0.4)
TOKENS = Profile(latency=0.2, spread=0.6, tokens=100, seconds_per_token=0.01)
STRAGGLING = Profile(latency=0.5, spread=0.3, straggler_fraction=0.05, straggler_factor=10.0)
TROUBLED = replace(STRAGGLING, error_fraction=0.2)

profiles = st.builds(
    Profile,
    latency=st.floats(0, 100),
    spread=st.floats(0, 3),
    tokens=st.integers(0, 10_000),
    concurrency_limit=st.none() | st.integers(0, 1000),
    rate_limit=st.none() | st.floats(0.01, 1000),
    error_fraction=st.floats(0, 1),
    error_status=st.sampled_from([500, 502, 503, 504]),
    storm_length=st.integers(0, 100),
)


def draw(profile: Profile, count: int, seed: int = 7, in_flight: int = 1) -> list[Decision]:
    model = LatencyModel(profile, seed)
    return [model.decide(key, in_flight, 0.0) for key in range(count)]


@given(profiles)
def test_a_profile_survives_json(profile: Profile) -> None:
    assert Profile.from_json(profile.to_json()) == profile


@given(profiles)
def test_a_profile_survives_the_command_line(profile: Profile) -> None:
    parser = argparse.ArgumentParser()
    Profile.add_arguments(parser)
    assert Profile.from_arguments(parser.parse_args(profile.to_arguments())) == profile


def test_every_flag_explains_itself() -> None:
    parser = argparse.ArgumentParser()
    Profile.add_arguments(parser)
    assert "0.01 is 1 % each (0.0)" in " ".join(parser.format_help().split())


@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [
        ("latency", -1.0, "--latency"),
        ("spread", float("nan"), "--spread"),
        ("error_fraction", 1.5, "--error-fraction"),
        ("error_status", 404, "--error-status"),
        ("error_status", 599, "--error-status"),
        ("rate_limit", 0.0, "--rate-limit"),
        ("storm_length", -1, "--storm-length"),
    ],
)
def test_a_wrong_profile_names_the_flag(field: str, value: float, flag: str) -> None:
    with pytest.raises(ValueError, match=flag):
        Profile.from_json(f'{{"{field}": {"NaN" if value != value else value}}}')


def test_without_spread_the_latency_is_constant_to_the_last_digit() -> None:
    assert set(draw(Profile(latency=2.0), 100)) == {Decision(200, 2.0)}


def test_tokens_and_load_add_up() -> None:
    profile = Profile(latency=0.5, tokens=100, seconds_per_token=0.25, load_growth=0.5)
    assert [draw(profile, 1, in_flight=n)[0].seconds for n in (1, 2, 3)] == [25.5, 38.25, 51.0]


@pytest.mark.parametrize("profile", [SPREAD, TOKENS, STRAGGLING], ids=["spread", "tokens", "straggling"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.98])
def test_drawn_quantiles_are_the_analytic_ones(profile: Profile, p: float) -> None:
    seconds = quantiles([decision.seconds for decision in draw(profile, 20_000)], n=100)
    assert seconds[round(p * 100) - 1] == pytest.approx(LatencyModel(profile).quantile(p), rel=0.05)


def test_constant_stragglers_have_two_latencies() -> None:
    model = LatencyModel(Profile(latency=2.0, straggler_fraction=0.1, straggler_factor=5.0))
    assert [model.quantile(p) for p in (0.5, 0.89, 0.91)] == pytest.approx([2.0, 2.0, 10.0])


def test_quantiles_grow_with_load_as_draws_do() -> None:
    loaded = LatencyModel(replace(STRAGGLING, load_growth=0.1))
    for p in (0.2, 0.97):
        assert loaded.quantile(p, in_flight=11) == pytest.approx(2 * loaded.quantile(p))


def test_the_same_seed_gives_the_same_decisions() -> None:
    assert draw(TROUBLED, 500, seed=3) == draw(TROUBLED, 500, seed=3)
    assert draw(TROUBLED, 500, seed=3) != draw(TROUBLED, 500, seed=4)


@given(st.randoms(use_true_random=False))
def test_what_a_request_meets_does_not_depend_on_the_order(shuffle: random.Random) -> None:
    keys = [f"request {number}".encode() for number in range(50)]
    model, other = LatencyModel(TROUBLED, 1), LatencyModel(TROUBLED, 1)
    expected = {key: model.decide(key, 1, 0.0) for key in keys}
    shuffle.shuffle(keys)
    assert {key: other.decide(key, 1, 0.0) for key in keys} == expected


def test_a_retry_is_a_new_draw_and_reset_starts_the_story_again() -> None:
    model = LatencyModel(TROUBLED, 5)
    first = [model.decide(b"the same", 1, 0.0) for _ in range(20)]
    assert len(set(first)) > 10
    model.reset()
    assert [model.decide(b"the same", 1, 0.0) for _ in range(20)] == first


def test_errors_come_as_often_as_asked() -> None:
    statuses = [decision.status for decision in draw(replace(SPREAD, error_fraction=0.2), 10_000)]
    assert statuses.count(503) / len(statuses) == pytest.approx(0.2, rel=0.05)


def test_a_storm_hits_exactly_its_window() -> None:
    statuses = [d.status for d in draw(Profile(storm_start=3, storm_length=2, error_status=502), 7)]
    assert statuses == [200, 200, 200, 502, 502, 200, 200]


def test_more_than_the_concurrency_limit_is_a_429_with_retry_after() -> None:
    model = LatencyModel(Profile(latency=1.0, concurrency_limit=80, retry_after=2.5))
    assert model.decide(1, 80, 0.0) == Decision(200, 1.0)
    assert model.decide(2, 81, 0.0) == Decision(429, 0.0, (("retry-after", "2.5"),))


def test_a_rate_allows_a_second_at_once_and_then_its_pace() -> None:
    model = LatencyModel(Profile(rate_limit=2.0))
    instants = [0.0, 0.0, 0.0, 0.25, 0.5, 0.5, 9.0, 9.0, 9.0]
    decisions = [model.decide(key, 1, now) for key, now in enumerate(instants)]
    assert [d.status for d in decisions] == [200, 200, 429, 429, 200, 429, 200, 200, 429]
    assert [dict(d.headers)["x-ratelimit-remaining-requests"] for d in decisions[:3]] == ["1", "0", "0"]


def test_being_turned_away_does_not_use_up_a_draw() -> None:
    limited = LatencyModel(replace(SPREAD, concurrency_limit=1), 9)
    turned_away, served = limited.decide(b"a", 2, 0.0), limited.decide(b"a", 1, 0.0)
    assert turned_away.status == 429
    assert served == LatencyModel(SPREAD, 9).decide(b"a", 1, 0.0)


@pytest.mark.parametrize("profile", [SPREAD, STRAGGLING, Profile(latency=0.7)])
def test_fit_finds_the_profile_that_made_the_latencies(profile: Profile) -> None:
    fitted = fit(decision.seconds for decision in draw(profile, 20_000))
    assert fitted.latency == pytest.approx(profile.latency, rel=0.05)
    assert fitted.spread == pytest.approx(profile.spread, abs=0.03)
    assert fitted.straggler_fraction == pytest.approx(profile.straggler_fraction, abs=0.01)
    assert fitted.straggler_factor == pytest.approx(profile.straggler_factor, rel=0.1)


@pytest.mark.parametrize("latencies", [[], [0.1] * 7, [0.0] * 10, [float("inf")] * 10])
def test_fit_refuses_what_says_nothing(latencies: list[float]) -> None:
    with pytest.raises(ValueError, match="8 or more"):
        fit(latencies)

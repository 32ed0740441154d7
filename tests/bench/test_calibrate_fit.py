"""The fit recovers what attempts were drawn from, and says what it cannot."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.calibrate.attempts import Attempt, in_flight
from bench.calibrate.fit import CannotFit, fit
from bench.calibrate.limits import limit_of
from rewardcore.testing.latency import LatencyModel, Profile

LEVELS = ((1, 8), (4, 12), (16, 48), (64, 192))


class Endpoint:
    """A known model, asked by workers as the probe asks: who is refused leaves, or comes again after `pause`."""

    def __init__(self, profile: Profile, seed: int = 0, tokens: int | None = 70) -> None:
        self.model, self.tokens = LatencyModel(profile, seed), tokens
        self.now, self.in_flight, self.keys = 0.0, 0, iter(range(10**9))
        self.attempts: list[Attempt] = []

    def stage(self, number: int, at_once: int, quota: int, pause: float | None = None) -> None:
        draw, sent = random.Random(number), 0
        events = [(self.now, 0, worker, False) for worker in range(at_once)]
        while events:
            self.now, _, worker, is_landing = heapq.heappop(events)
            self.in_flight -= is_landing
            if sent == quota:
                continue
            decision = self.model.decide(next(self.keys), self.in_flight + 1, self.now)
            is_refused = decision.status == 429
            outcome = "refused" if is_refused else "replied" if decision.status == 200 else "failed"
            attempt = Attempt(number, at_once, sent, self.now, decision.seconds, outcome, tokens=self.tokens)
            self.attempts.append(attempt)
            sent += 1
            if not is_refused:
                self.in_flight += 1
                heapq.heappush(events, (self.now + decision.seconds, 1, worker, True))
            elif pause is not None:
                heapq.heappush(events, (self.now + pause * (0.5 + draw.random()), 0, worker, False))
        self.now += 1.0


def climbed(profile: Profile, seed: int = 0, press: int | None = None) -> list[Attempt]:
    """All stages; with `press`, a last one of so many workers that do not leave."""
    endpoint = Endpoint(profile, seed)
    for number, (at_once, quota) in enumerate(LEVELS):
        endpoint.stage(number, at_once, quota)
    if press is not None:
        endpoint.stage(len(LEVELS), press, 160, pause=profile.latency / 2)
    return endpoint.attempts


@settings(max_examples=15, derandomize=True)
@given(st.floats(0.01, 20.0), st.floats(0.0, 0.1), st.integers(0, 10**6))
def test_a_constant_and_its_growth_are_recovered(latency, growth, seed):
    """To 8 % of what a reply takes, at every load that was asked; drawn from any such endpoint."""
    found = fit(climbed(Profile(latency=latency, load_growth=growth), seed))
    for load in (1, 16, 60):
        true = latency * (1 + growth * (load - 1))
        assert found.seconds(load) == pytest.approx(true, rel=0.08)


@settings(max_examples=15, derandomize=True)
@given(st.floats(0.05, 0.6), st.integers(0, 10**6))
def test_a_spread_is_recovered(spread, seed):
    found = fit(climbed(Profile(latency=1.0, spread=spread), seed))
    assert found.spread.value == pytest.approx(spread, rel=0.4)
    assert found.spread.low <= found.spread.value <= found.spread.high


def test_stragglers_are_told_from_a_spread():
    found = fit(climbed(Profile(latency=1.0, spread=0.1, straggler_fraction=0.05, straggler_factor=8.0), seed=3))
    assert found.spread.value == pytest.approx(0.1, rel=0.3)
    assert found.profile.straggler_fraction == pytest.approx(0.05, abs=0.04)
    assert found.profile.straggler_factor == pytest.approx(8.0, rel=0.3)


@pytest.mark.parametrize("cap", [2, 10, 24, 50])
def test_a_cap_is_found_to_the_last_place(cap):
    found = fit(climbed(Profile(latency=1.0, spread=0.2, concurrency_limit=cap), press=math.ceil(1.5 * cap) + 1))
    assert found.limit is not None
    assert (found.limit.kind, found.limit.value) == ("at once", cap)
    assert found.profile.concurrency_limit == cap
    assert found.bears == cap


@pytest.mark.parametrize(("rate", "latency"), [(20.0, 0.5), (40.0, 0.5), (100.0, 0.2)])
def test_a_rate_is_found_within_a_twentieth(rate, latency):
    profile = Profile(latency=latency, spread=0.2, rate_limit=rate)
    found = limit_of(climbed(profile, press=math.ceil(1.5 * rate * latency) + 1))
    assert found is not None
    assert found.kind == "a second"
    assert found.value == pytest.approx(rate, rel=0.05)


def test_what_is_refused_by_no_rule_is_a_doubt():
    draw = random.Random(0)
    attempts = [
        attempt if draw.random() < 0.6 else attempt._replace(outcome="refused", seconds=0.0)
        for attempt in climbed(Profile(latency=1.0))
    ]
    found = fit(attempts)
    assert found.limit is not None
    assert found.limit.wrong > 0.1
    assert any(doubt.startswith("how it refuses") for doubt in found.doubts)


def test_what_the_model_cannot_express_is_a_residual():
    """Flat up to 16 at once, and then four times as slow: no line goes through that."""
    attempts = climbed(Profile(latency=1.0, spread=0.02))
    began = min(attempt.sent for attempt in attempts if attempt.at_once == 64)
    bent = [
        attempt._replace(sent=began + 4 * (attempt.sent - began), seconds=4 * attempt.seconds)
        if attempt.at_once == 64
        else attempt
        for attempt in attempts
    ]
    assert max(abs(level.off) for level in fit(bent).levels) > 0.2
    assert max(abs(level.off) for level in fit(attempts).levels) < 0.02


def test_failures_are_part_of_the_model():
    found = fit(climbed(Profile(latency=1.0, error_fraction=0.1), seed=1))
    assert found.profile.error_fraction == pytest.approx(0.1, abs=0.05)


def with_lengths(seconds_of_token: float, spread: float = 0.1) -> list[Attempt]:
    draw, attempts = random.Random(0), []
    for stage, (tokens, is_short) in enumerate([(200, False), (25, True), (100, True)]):
        for number in range(16):
            seconds = (0.3 + seconds_of_token * tokens) * math.exp(spread * draw.gauss(0, 1))
            at = 100.0 * stage + 5.0 * (number // 4)
            attempts.append(Attempt(stage, 4, number, at, seconds, "replied", tokens=tokens, is_short=is_short))
    return attempts


def test_what_a_token_takes_is_told_where_lengths_differ():
    found = fit(with_lengths(0.01)).tokens
    assert found is not None
    assert found.seconds.value == pytest.approx(0.01, rel=0.15)
    assert found.typical == 200


def test_what_a_token_takes_is_not_told_where_it_makes_no_difference():
    found = fit(with_lengths(0.0, spread=0.2))
    assert found.tokens is None
    assert any(doubt.startswith("what a token takes") for doubt in found.doubts)


def test_replies_that_are_on_their_way_back_are_no_load():
    """A wave of four lands within a hundredth of a reply's time, and the next leaves reply by reply."""
    wave = [Attempt(0, 4, number, 0.001 * number, 1.0, "replied") for number in range(4)]
    following = [Attempt(0, 4, 4 + number, 1.0 + 0.001 * number, 1.0, "replied") for number in range(4)]
    loads = in_flight([*wave, *following])
    assert [loads[attempt] for attempt in wave + following] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_too_few_replies_are_no_model():
    with pytest.raises(CannotFit, match=r"only 0 of 20 requests were replied to .* \(20 refused, 0 failed"):
        fit([Attempt(0, 1, number, float(number), 0.0, "refused") for number in range(20)])


def test_the_same_attempts_give_the_same_fit():
    attempts = climbed(Profile(latency=0.5, spread=0.3, load_growth=0.01))
    assert fit(attempts) == fit(attempts)

"""Quota headers bring a judge nearer to the endpoint's own pace, never further away: exact, in virtual time."""

from __future__ import annotations

import functools
import math

import pytest

from bench.profiles.drive import Player, new_pace, own_pace
from bench.profiles.endpoints import Bucket, FixedWindow, as_anthropic, as_openai, as_seconds

SETTINGS = [60, 200, "auto"]


def rounded_down(limit, left, reset, now):
    """Whole seconds, as who cuts them off tells them: nothing is back yet at that moment."""
    return as_seconds(limit, left, math.floor(reset), now)


STYLES = {
    "milliseconds": as_openai,
    "whole seconds": as_seconds,
    "rounded down": rounded_down,
    "a moment": as_anthropic,
}


def judged(endpoint, setting, batches=1, size=300, until=600.0):
    player = Player(endpoint, new_pace(setting))
    for batch in range(batches):
        player.judge(batch, until, size)
    assert player.statuses == {"ok": batches * size}
    return player


@functools.cache
def untold(limit, period, setting, size):
    return judged(FixedWindow(limit=limit, period=period, seconds=0.5), setting, size=size).now


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("limit", "period"), [(50, 2.0), (100, 4.0)])
@pytest.mark.parametrize("size", [300, 1000])
def test_a_fixed_window_that_is_told_costs_no_more_than_one_that_is_not(style, setting, limit, period, size):
    endpoint = FixedWindow(limit=limit, period=period, seconds=0.5, tells=STYLES[style])
    assert judged(endpoint, setting, size=size).now <= 1.3 * untold(limit, period, setting, size)


@pytest.mark.parametrize("style", [None, *STYLES])
@pytest.mark.parametrize("setting", SETTINGS)
def test_who_never_comes_to_the_end_of_a_window_is_never_held_back(style, setting):
    """40 samples every 3 s where 50 in 2 s are borne: nothing is refused, and each batch takes one reply's time."""
    endpoint = FixedWindow(limit=50, period=2.0, seconds=0.5, tells=STYLES.get(style))
    player = Player(endpoint, new_pace(setting))
    for batch in range(10):
        player.now = 3.0 * batch
        player.judge(batch, size=40)
    assert player.statuses == {"ok": 400}
    assert player.refused == 0
    assert max(player.makespans[1:]) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("style", [as_openai, as_anthropic])
@pytest.mark.parametrize("burst", [50, 500])
def test_a_bucket_that_is_told_is_asked_at_its_own_pace(setting, style, burst):
    """Within a twentieth of a client that knows beforehand what is accepted; else it is refused first."""
    at_once = math.inf if setting == "auto" else setting
    ideal = sum(own_pace(Bucket(rate=50, burst=burst), at_once, batches=2))
    player = judged(Bucket(rate=50, burst=burst, tells=style), setting, batches=2, size=1024)
    assert player.now <= (1.05 if setting == 60 else 1.35) * ideal
    first_burst = {60: 0, "auto": 512}.get(setting, setting)
    assert player.refused <= 0.05 * 2 * 1024 + first_burst

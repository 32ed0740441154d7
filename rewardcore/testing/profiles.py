"""Tempers of an endpoint by name, for a command, a marker or a test that would rather not spell out its fields.

Each is a Profile and one line that says what it is like; any field may be changed on the way.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..failures import ConfigurationError
from .latency import Profile

PROFILES: dict[str, tuple[Profile, str]] = {
    "instant": (Profile(), "answers at once, and never refuses"),
    "steady": (Profile(latency=0.5, spread=0.2), "half a second a reply, give or take"),
    "slow": (Profile(latency=1.0, spread=0.3, tokens=80, seconds_per_token=0.05), "about five seconds a reply"),
    "stragglers": (
        Profile(latency=0.5, spread=0.2, straggler_fraction=0.05, straggler_factor=10.0),
        "half a second, and one reply in twenty takes ten times as long",
    ),
    "crowded": (Profile(latency=0.5, load_growth=0.02), "half a second, and 2 % more for each other request in flight"),
    "limited": (Profile(latency=0.5, concurrency_limit=80), "429 above 80 requests at once"),
    "rate-limited": (Profile(latency=0.5, rate_limit=50.0), "429 above 50 requests a second"),
    "flaky": (Profile(latency=0.5, error_fraction=0.1, error_status=500), "one request in ten is answered with 500"),
    "outage": (
        Profile(latency=0.5, outage_start=3.0, outage_seconds=10.0),
        "503 for ten seconds, three seconds after the first request",
    ),
}


def named(profile: Profile | str | None = None, **changes: Any) -> Profile:
    """A profile, or the one of that name, with these fields changed; nothing at all is `instant`."""
    if isinstance(profile, str):
        if profile not in PROFILES:
            raise ConfigurationError(f"profile {profile!r} is none of {', '.join(PROFILES)}")
        profile, _ = PROFILES[profile]
    elif not isinstance(profile, Profile | None):
        raise ConfigurationError(f"profile must be a Profile or the name of one, not {type(profile).__name__}")
    unknown = changes.keys() - {field.name for field in fields(Profile)}
    if unknown:
        known = ", ".join(field.name for field in fields(Profile))
        raise ConfigurationError(f"a profile has no {', '.join(sorted(unknown))}; it has {known}")
    return replace(profile or Profile(), **changes)

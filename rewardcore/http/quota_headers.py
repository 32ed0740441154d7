"""What headers say of an endpoint's quota, in the styles of OpenAI and of Anthropic."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ..reply import Quota

_COUNT = re.compile(r"[0-9]{1,15}")
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern}){{1,5}}")
#: The names of what is left, of the limit and of the reset; whether it is of tokens, and the reset a moment.
_NAMES: list[tuple[str, str, str, bool, bool]] = [
    (style.format("remaining", unit), style.format("limit", unit), style.format("reset", unit), unit == "tokens", of)
    for unit in ("requests", "tokens")
    for style, of in (("x-ratelimit-{0}-{1}", False), ("anthropic-ratelimit-{1}-{0}", True))
]
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_quota(headers: Mapping[str, str], usage: Mapping[str, int] | None, now: Callable[[], float]) -> Quota | None:
    """Of requests and tokens, whichever has the smaller share left; None where nothing is told, or nonsense."""
    found = [_quota(headers, usage, now, *names) for names in _NAMES if names[0] in headers]
    return min(filter(None, found), key=lambda quota: quota.left / quota.limit, default=None) if found else None


def _quota(
    headers: Mapping[str, str],
    usage: Mapping[str, int] | None,
    now: Callable[[], float],
    of_left: str,
    of_limit: str,
    of_reset: str,
    is_of_tokens: bool,
    is_moment: bool,
) -> Quota | None:
    left, limit, reset = headers[of_left], headers.get(of_limit, ""), headers.get(of_reset, "")
    if not _COUNT.fullmatch(left) or not _COUNT.fullmatch(limit) or int(left) > int(limit) or int(limit) == 0:
        return None
    seconds = _seconds_until(reset, now) if is_moment else _duration(reset)
    cost = (usage or {}).get("total_tokens", 0) if is_of_tokens else 1
    return None if seconds is None else Quota(int(limit), int(left), seconds, cost)


def _duration(text: str) -> float | None:
    """Seconds of `6m0s`, `20ms` or `1.5`."""
    text = text if text[-1:].isalpha() else f"{text}s"
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(value) * _UNITS[unit] for value, unit in _PART.findall(text))


def _seconds_until(text: str, now: Callable[[], float]) -> float | None:
    """Of a moment such as `2026-01-31T12:00:00Z`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() - now())

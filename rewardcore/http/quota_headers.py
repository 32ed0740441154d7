"""What headers say of an endpoint's quota, in the styles of OpenAI and of Anthropic."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ..reply import Quota

_COUNT = re.compile(r"[0-9]{1,15}")
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern}){{1,5}}")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_quota(headers: Mapping[str, str], usage: Mapping[str, int] | None, now: Callable[[], float]) -> Quota | None:
    """Of requests and tokens, whichever has the smaller share left; None where nothing is told, or nonsense."""
    found = []
    tokens = (usage or {}).get("total_tokens", 0)
    for unit, cost in (("requests", 1), ("tokens", tokens)):
        for name in (f"x-ratelimit-{{}}-{unit}", f"anthropic-ratelimit-{unit}-{{}}"):
            left = headers.get(name.format("remaining"))
            if left is None:
                continue
            limit, reset = headers.get(name.format("limit"), ""), headers.get(name.format("reset"), "")
            if not _COUNT.fullmatch(left) or not _COUNT.fullmatch(limit) or int(left) > int(limit) or int(limit) == 0:
                continue
            seconds = _duration(reset) if name.startswith("x") else _seconds_until(reset, now)
            if seconds is not None:
                found.append(Quota(int(limit), int(left), seconds, cost))
    return min(found, key=lambda quota: quota.left / quota.limit) if found else None


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

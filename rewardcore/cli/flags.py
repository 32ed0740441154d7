"""How the text of a flag is read, where more than one command takes it."""

from __future__ import annotations

import json
from typing import Any

from ..failures import ConfigurationError


def json_object(flag: str, text: str) -> dict[str, Any] | None:
    """None for nothing, and for an object without fields."""
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise ConfigurationError(f"{flag} must be a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f'{flag} must be a JSON object such as {{"min_p": 0.1}}, not {text[:40]!r}')
    return value or None

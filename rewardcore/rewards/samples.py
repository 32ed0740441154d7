"""A trainer's row as a `Sample`: its images as an endpoint can be sent them, its ground truth as a rubric shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..failures import ConfigurationError
from ..rubrics.transcript import as_json
from ..sample import Sample
from .images import sendable
from .rules import is_missing


def sample_of(
    prompt: Any, response: str, ground_truth: Any, data_source: str = "", extra: Mapping[str, Any] | None = None
) -> Sample:
    return Sample(sendable(prompt), response, as_text(ground_truth), data_source, extra)


def as_text(ground_truth: Any) -> str | None:
    """A ground truth as a rubric shows it: what is no text, as JSON."""
    if is_missing(ground_truth):
        return None
    try:
        return ground_truth if isinstance(ground_truth, str) else as_json(ground_truth)
    except TypeError as error:
        raise ConfigurationError(f"ground_truth cannot be shown to a judge: {error}") from error

"""A sample: the one thing that is judged. It knows nothing of rubrics, endpoints or trainers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt and the response to judge, with whatever a rubric or a rule may want beside it."""

    prompt: str
    response: str
    ground_truth: str | None = None
    data_source: str = ""
    extra: Mapping[str, Any] | None = None

"""A verdict: what became of one sample. A failure has no score, and nothing in the core ever gives it one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "unparsed", "refused", "truncated", "timeout", "failed"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one sample; `score` is a number when `status` is `ok`, else None.

    `attempts` is what this sample cost: 0 when the reply came from the cache or from an identical request in
    flight, so the attempts of a batch add up to its requests. `usage` is the reply's own, whoever paid for it.
    """

    status: Status
    score: float | None = None
    text: str = ""
    error: str | None = None
    cached: bool = False
    attempts: int = 0
    latency: float = 0.0
    usage: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if (self.score is None) == (self.status == "ok"):
            raise ValueError(f"a verdict has a score exactly when it is ok, not {self.score} with {self.status!r}")

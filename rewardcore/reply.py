"""A reply is what the judge said; an answer is what one attempt came to. Whoever asked it, and wherever."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .failures import Failure
from .verdict import Verdict
from .words import cut


class Quota(NamedTuple):
    """What an endpoint says it will take, in requests or in tokens, of which this request took `cost`: so many are left
    of its limit, and all of them are back in so many seconds. The cost of a refused request is not known: 0."""

    limit: float
    left: float
    reset: float
    cost: float = 1.0


class Reply(NamedTuple):
    """What the judge said, and what the endpoint said of its quota, where it did."""

    text: str
    usage: dict[str, int] | None = None
    quota: Quota | None = None


class Answer(NamedTuple):
    """One attempt's outcome: a reply with its score, or with or without a reply the failure in its place."""

    reply: Reply | None = None
    score: float | None = None
    failure: Failure | None = None

    @property
    def said(self) -> Reply | None:
        """Whatever the judge said, also where it is no whole reply."""
        return self.reply or (self.failure.reply if self.failure is not None else None)

    def verdict(
        self, cached: bool = False, attempts: int = 0, latency: float = 0.0, mask: Callable[[str], str] = str
    ) -> Verdict:
        """`mask` hides what no message may show."""
        text, usage, _ = self.said or _NOTHING_SAID
        if (failure := self.failure) is None:
            return Verdict("ok", self.score, text, None, cached, attempts, latency, usage)
        error = mask(cut(f"{failure.kind}: {failure}"))
        return Verdict(failure.status, None, text, error, cached, attempts, latency, usage)


_NOTHING_SAID = Reply("")

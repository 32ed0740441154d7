"""What became of a file's rows: as one JSON document, and as the lines that a person reads of it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from ..notices import Tally
from ..stats import Stats
from ..verdict import Status, Verdict

#: What a rerun tries again. The rest is what the judge said, and asking again would say it again.
TRIED_AGAIN: frozenset[Status] = frozenset({"timeout", "failed"})
_BINS = 10
_BAR = 40


class Summary:
    """Told every verdict of a run, those of its earlier lives too; it stays small however many there are.

    Quartiles and percentiles are those of scores rounded to four digits, and of latencies rounded to milliseconds.
    """

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter()
        self._tally = Tally()
        self._scores: Counter[float] = Counter()
        self._latencies: Counter[float] = Counter()
        self._sum, self._squares = 0.0, 0.0

    def add(self, verdict: Verdict) -> None:
        self._statuses[verdict.status] += 1
        self._tally.add(verdict)
        if (score := verdict.score) is not None:
            self._scores[round(score, 4)] += 1
            self._sum, self._squares = self._sum + score, self._squares + score * score
        if verdict.attempts:
            self._latencies[round(verdict.latency, 3)] += 1

    def document(self, stats: Stats, resumed: int, bad_rows: int) -> dict[str, Any]:
        """`stats` is what this life of the run has sent and saved."""
        total, kinds = self._statuses.total(), self._tally.kinds.most_common()
        return {
            "rows": total,
            "resumed": resumed,
            "bad_rows": bad_rows,
            "statuses": dict(self._statuses.most_common()),
            "without_score": total - self._statuses["ok"],
            "to_try_again": sum(self._statuses[status] for status in TRIED_AGAIN),
            "scores": self._distribution() if self._scores else None,
            "failures": {kind: {"count": count, "example": self._tally.why[kind]} for kind, count in kinds},
            "latency": dict(zip(("p50", "p99"), _percentiles(self._latencies, 0.50, 0.99), strict=True)),
            "requests": {
                "sent": stats.requests,
                "retried": stats.retried,
                "cached": stats.cached,
                "coalesced": stats.coalesced,
            },
            "tokens": {"prompt": stats.prompt_tokens, "completion": stats.completion_tokens},
        }

    def _distribution(self) -> dict[str, Any]:
        count, least, most = self._scores.total(), min(self._scores), max(self._scores)
        mean = self._sum / count
        low, high = min(0.0, least), max(1.0, most)
        edges = [low + (high - low) * place / _BINS for place in range(_BINS + 1)]
        places: Counter[int] = Counter()
        for score, times in self._scores.items():
            places[bisect_right(edges, score, hi=_BINS)] += times  # the last one holds its upper edge too
        return {
            "count": count,
            "mean": mean,
            "std": math.sqrt(max(0.0, self._squares / count - mean * mean)),
            "min": least,
            "quartiles": _percentiles(self._scores, 0.25, 0.50, 0.75),
            "max": most,
            "histogram": [
                {"from": edges[place - 1], "to": edges[place], "count": places[place]} for place in range(1, _BINS + 1)
            ],
        }


def _percentiles(counts: Counter[float], *fractions: float) -> list[float | None]:
    """By nearest rank, of values and how often each was seen: always one that was."""
    values = sorted(counts)
    ranks = list(accumulate(counts[value] for value in values))
    total = counts.total()
    return [values[bisect_left(ranks, max(1, math.ceil(share * total)))] if values else None for share in fractions]


def lines_of(document: Mapping[str, Any]) -> Iterator[str]:
    """For a person, from the same document that a program gets."""
    statuses = ", ".join(f"{count:,} {status}" for status, count in document["statuses"].items())
    earlier = f"; {document['resumed']:,} of them were done before" if document["resumed"] else ""
    yield f"{document['rows']:,} rows: {statuses or 'none'}{earlier}"
    if document["bad_rows"]:
        yield f"{document['bad_rows']:,} bad rows were skipped"
    if (scores := document["scores"]) is not None:
        quartiles = ", ".join(f"{score:.3g}" for score in scores["quartiles"])
        yield f"scores: mean {scores['mean']:.3f}, std {scores['std']:.3f}, quartiles {quartiles}"
        most = max(each["count"] for each in scores["histogram"])
        for each in scores["histogram"]:
            bar = "█" * math.ceil(_BAR * each["count"] / most)
            yield f"  {each['from']:>6.2f} to {each['to']:<6.2f} {bar:<{_BAR}} {each['count']:,}"
    for kind, failure in document["failures"].items():
        yield f"{failure['count']:,} {kind}, such as: {' '.join(failure['example'].split()) or 'no word'}"
    if document["latency"]["p50"] is not None:
        yield f"latency: p50 {document['latency']['p50']:.2f} s, p99 {document['latency']['p99']:.2f} s"
    requests, tokens = document["requests"], document["tokens"]
    saved = requests["cached"] + requests["coalesced"]
    yield (
        f"requests: {requests['sent']:,} sent, {requests['retried']:,} of them again; {saved:,} saved"
        f" ({requests['cached']:,} cached, {requests['coalesced']:,} shared)"
    )
    yield f"tokens: {tokens['prompt']:,} of prompts, {tokens['completion']:,} of replies"

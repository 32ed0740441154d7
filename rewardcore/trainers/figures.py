"""What is logged of a batch of verdicts: figures for the trainer's metrics, and a line for each verdict."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import get_args

from ..stats import percentile
from ..verdict import Status, Verdict

_LONGEST = 300


def figures_of(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """What is logged of a call. Shares are there even where they are 0: TRL averages a name over the calls that log it.

    Latency and tokens are of the replies that this call paid for, not of those from the cache or of another call.
    """
    size = len(verdicts) or 1
    replied = [verdict for verdict in verdicts if verdict.attempts and (verdict.text or verdict.usage)]
    seconds = sorted(verdict.latency for verdict in replied)
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    figures = {"judged": len(scores) / size, "cached": sum(verdict.cached for verdict in verdicts) / size}
    for status in get_args(Status)[1:]:
        figures[f"not_judged/{status}"] = sum(verdict.status == status for verdict in verdicts) / size
    for kind in ("prompt_tokens", "completion_tokens"):
        figures[kind] = float(sum((verdict.usage or {}).get(kind, 0) for verdict in replied))
    known = {
        "score": fmean(scores) if scores else None,
        "latency_p50": percentile(seconds, 0.5),
        "latency_p90": percentile(seconds, 0.9),
    }
    return figures | {name: figure for name, figure in known.items() if figure is not None}


def short(text: str) -> str:
    """One line. An error's kind stands at its beginning, a judge's verdict at its end: what is cut is between."""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"

"""What became of a problem: its rollouts come in one by one, in any order, and make one result. No IO.

A rollout is valid where a number is in it, unparsed where the model replied and none is (also where it refused, or was
cut), and failed where no reply could be had. Unparsed says something about the model; failed does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..verdict import Verdict
from .answers import predicted_value
from .problems import Problem

#: The fields of a result in reject_sampling_results.json; results.jsonl has two more, which count what is not valid.
FIELDS = (
    "index",
    "problem",
    "ground_truth",
    "min_error",
    "num_valid_rollouts",
    "num_total_rollouts",
    "best_response",
    "all_errors",
)
_UNPARSED = ("unparsed", "refused", "truncated")


@dataclass(frozen=True, slots=True)
class Counts:
    """Rollouts by what became of them."""

    valid: int = 0
    unparsed: int = 0
    failed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.valid + other.valid, self.unparsed + other.unparsed, self.failed + other.failed)

    @property
    def total(self) -> int:
        return self.valid + self.unparsed + self.failed


class Result:
    """One problem while its rollouts come in. Of their texts only that of the best is kept."""

    def __init__(self, problem: Problem, num_rollout: int) -> None:
        self.problem = problem
        self.missing = num_rollout
        self.counts = Counts()
        self.why = ""  # what the first that failed said
        self._errors: list[float | None] = [None] * num_rollout
        self._best: tuple[float, int] | None = None
        self._best_text = ""

    def add(self, rollout: int, verdict: Verdict) -> Counts:
        """What this one adds to the counts."""
        self.missing -= 1
        added = Counts(failed=1)
        if verdict.score is not None:
            added = Counts(valid=1)
            self._errors[rollout] = verdict.score
            # Of equal errors the first rollout's counts, so that the order in which they come changes nothing.
            if self._best is None or (verdict.score, rollout) < self._best:
                self._best, self._best_text = (verdict.score, rollout), verdict.text
        elif verdict.status in _UNPARSED:
            added = Counts(unparsed=1)
        else:
            self.why = self.why or verdict.error or verdict.status
        self.counts += added
        return added

    @property
    def is_failed(self) -> bool:
        """No rollout could be had: nothing is known about this problem."""
        return not self.missing and self.counts.failed == self.counts.total

    @property
    def min_error(self) -> float | None:
        return None if self._best is None else self._best[0]

    def document(self) -> dict[str, Any]:
        """As it is kept: `FIELDS`, and how many rollouts were unparsed and failed."""
        best = None
        if self._best is not None:
            best = {
                "response": self._best_text,
                "pred_value": predicted_value(self._best_text),
                "error": self._best[0],
            }
        return {
            "index": self.problem.index,
            "problem": self.problem.text,
            "ground_truth": self.problem.truth,
            "min_error": self.min_error,
            "num_valid_rollouts": self.counts.valid,
            "num_total_rollouts": self.counts.total,
            "best_response": best,
            "all_errors": [error for error in self._errors if error is not None],
            "num_unparsed_rollouts": self.counts.unparsed,
            "num_failed_rollouts": self.counts.failed,
        }

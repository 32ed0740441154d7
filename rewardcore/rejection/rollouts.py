"""How a model is asked, N times for each problem: a rubric for the same engine as judging, and the samples it is given.

The score of a rollout is its error, |predicted − truth|. Every rollout is a draw of its own, numbered by its row and
its place among the row's rollouts alone: a run that goes on, and one with more rollouts, finds it in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ..rubrics import Message
from ..rubrics.transcript import as_parts
from ..sample import Sample
from .answers import predicted_value
from .plan import MOST_ROLLOUTS
from .problems import Problem


class Asking:
    """The problem as it is, below a system prompt and above a suffix, on a line of its own, where there are any."""

    higher_is: Literal["worse"] = "worse"

    def __init__(self, system: str = "", suffix: str = "") -> None:
        self._system: list[Message] = [{"role": "system", "content": system}] if system else []
        self._suffix = f"\n{suffix}" if suffix else ""

    def messages(self, sample: Sample) -> list[Message]:
        if isinstance(sample.prompt, str):
            return [*self._system, {"role": "user", "content": sample.prompt + self._suffix}]
        (message,) = sample.prompt
        content = as_parts([message["content"], self._suffix]) if self._suffix else message["content"]
        return [*self._system, {"role": "user", "content": content}]

    def parse(self, text: str, sample: Sample) -> float:
        return abs(predicted_value(text) - float(sample.ground_truth or "nan"))


def rollouts_of(problem: Problem, count: int) -> Iterator[Sample]:
    """Reads the images once; raises Unusable before the first where one is broken."""
    prompt, truth = problem.prompt(), repr(problem.truth)
    for rollout in range(count):
        yield Sample(prompt, "", truth, draw=problem.index * MOST_ROLLOUTS + rollout)

"""`LengthPenaltyRewardManager`: task score + judge score × reward_coefficient − length penalty, for verl's batches.

Groups are the rows that share a `uid`; lengths are tokens. The judge is asked of the whole batch at once, and only
where the task score is above 0. A failed judgement raises `NotJudged`: a tensor has no mask, and any number would
train. What was judged is in the cache, and is not paid again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from statistics import median
from typing import Any

from ..calls import Pending
from ..failures import ConfigurationError
from ..verdict import Verdict
from .batch import BatchRow, column_of, reward_tensor, rows_of, scores_in, show
from .configuration import read
from .judges import as_rubric, release, reward_of, scores_of
from .length import LengthPenaltyConfig, length_penalty
from .rules import finite, task_score
from .samples import sample_of
from .score import compute_score as own_compute_score


class LengthPenaltyRewardManager:
    """Called with a batch: its reward tensor, or with `return_dict` that and the extra info, in batch order.

    `compute_score` is verl's, asked for the task score with verl's keywords; without one, the registered rules are. Any
    other keyword is a field of `LengthPenaltyConfig`.
    """

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int = 0,
        length_penalty_config: LengthPenaltyConfig | Mapping[str, Any] | None = None,
        *,
        compute_score: Callable[..., Any] | None = None,
        reward_fn_key: str = "data_source",
        **fields: Any,
    ) -> None:
        given = length_penalty_config
        if fields and isinstance(given, LengthPenaltyConfig):
            raise ConfigurationError(
                f"{', '.join(fields)} must be given in length_penalty_config, which is there already"
            )
        self.tokenizer = tokenizer
        self.num_examine = num_examine
        self.compute_score = compute_score
        self.reward_fn_key = reward_fn_key
        self.config = read(
            LengthPenaltyConfig, {**(given or {}), **fields} if isinstance(given, Mapping | None) else given
        )
        self.rubric = as_rubric(self.config.rubric)
        if self.config.enable_openai_reward:
            self.config.endpoint()  # what is missing is told now, not after the first rollout

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        return self.submit(data).result(return_dict)

    def submit(self, data: Any) -> PendingRewards:
        """Returns at once, and the judge works while the trainer computes log-probabilities and values."""
        if (scored := scores_in(data)) is not None:
            return PendingRewards(lambda _: dict(zip(("reward_tensor", "reward_extra_info"), scored, strict=True)))
        rows = rows_of(data, self.tokenizer, self.reward_fn_key)
        tasks = self._task_scores(rows)
        lengths, medians = [float(row.length) for row in rows], group_medians(rows)
        penalties = [length_penalty(*both, self.config) for both in zip(lengths, medians, strict=True)]
        asked = self._to_ask(rows, tasks)

        def finish(verdicts: Sequence[Verdict]) -> dict[str, Any]:
            judged = self._judged(dict(zip(asked, verdicts, strict=True)), len(rows))
            rewards = [task + part - penalty for task, part, penalty in zip(tasks, judged, penalties, strict=True)]
            extra_info = {
                "openai_quality_reward": judged,
                "length_penalty": penalties,
                "original_score": tasks,
                "response_length": lengths,
                "median_length": medians,
            }
            show(rows, {"score": rewards, **extra_info}, self.num_examine)
            return {"reward_tensor": reward_tensor(data, rewards), "reward_extra_info": extra_info}

        return PendingRewards(finish, self._submit([rows[place] for place in asked]) if asked else None)

    def shutdown_workers(self) -> None:
        """Release the judge, with all its connections and its thread, unless another manager has asked it too and is
        not shut down yet; another call would open another.
        """
        release(self)

    def _task_scores(self, rows: Sequence[BatchRow]) -> list[float]:
        if self.compute_score is None:
            return [task_score(row.data_source, row.response, row.ground_truth, row.extra) for row in rows]
        if own_compute_score in (self.compute_score, *getattr(self.compute_score, "args", ())):
            # Itself, or as verl binds reward_kwargs to it: it asks its monitor about all of them at once.
            scores: list[float] = self.compute_score(
                data_sources=[row.data_source for row in rows],
                solution_strs=[row.response for row in rows],
                ground_truths=[row.ground_truth for row in rows],
                extra_infos=[{"prompt": row.prompt, **row.extra} for row in rows],
            )
            return scores
        return [self._asked(row) for row in rows]

    def _asked(self, row: BatchRow) -> float:
        assert self.compute_score is not None
        found = self.compute_score(
            data_source=row.data_source, solution_str=row.response, ground_truth=row.ground_truth, extra_info=row.extra
        )
        return finite(found.get("score") if isinstance(found, Mapping) else found, "compute_score must return")

    def _to_ask(self, rows: Sequence[BatchRow], tasks: Sequence[float]) -> list[int]:
        """The places that the judge is asked about."""
        if not self.config.enable_openai_reward or not self.config.reward_coefficient:
            return []
        return [place for place, task in enumerate(tasks) if task > 0 and rows[place].length]

    def _submit(self, rows: Sequence[BatchRow]) -> Pending:
        samples = [sample_of(row.prompt, row.response, row.ground_truth, row.data_source) for row in rows]
        return self.config.judge(self.rubric, self).submit(samples)

    def _judged(self, verdicts: Mapping[int, Verdict], total: int) -> list[float]:
        """The judge's part of each reward; 0 where it is not asked."""
        parts = [0.0] * total
        for place, score in scores_of(verdicts, total).items():
            parts[place] = self.config.reward_coefficient * reward_of(score, self.rubric)
        return parts


class PendingRewards:
    """A batch that is being judged. `result` gives what the manager's call would have returned."""

    def __init__(self, finish: Callable[[Sequence[Verdict]], dict[str, Any]], pending: Pending | None = None) -> None:
        self._finish, self._pending = finish, pending
        self._found: dict[str, Any] | None = None

    @property
    def waited(self) -> float:
        """How long `result` has blocked its caller so far: what the GPUs waited for the judge."""
        return self._pending.waited if self._pending is not None else 0.0

    def result(self, return_dict: bool = False) -> Any:
        if self._found is None:
            self._found = self._finish(self._pending.result() if self._pending is not None else [])
        return self._found if return_dict else self._found["reward_tensor"]

    def cancel(self) -> None:
        """Stop asking the judge; `result` would raise."""
        if self._pending is not None:
            self._pending.cancel()


def group_medians(rows: Sequence[BatchRow]) -> list[float]:
    """For each row, the median length of the rows that share its uid."""
    uids = column_of(
        rows, "uid", "the length penalty compares the responses to one prompt, and this says which those are"
    )
    groups: dict[Any, list[int]] = defaultdict(list)
    for uid, row in zip(uids, rows, strict=True):
        if not isinstance(uid, str | Integral):  # a tensor would be a group of its own, None one of everybody
            raise ConfigurationError(f"uid must be a text or a whole number, not {type(uid).__name__}")
        groups[uid].append(row.length)
    medians = {uid: float(median(lengths)) for uid, lengths in groups.items()}
    return [medians[uid] for uid in uids]

"""verl: an asynchronous reward function, a manager for its reward loop, and the two managers for whole batches.

All of them are in `pkg://rewardcore.trainers.verl`. A failed judgement raises `NotJudged`: in the reward loop verl then
leaves out the trajectory, or replaces its group; a batch has no mask, so there it costs the batch, and what was judged
is in the cache. The loop hands each trajectory to a process drawn at random, which knows nothing of its group.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from numbers import Real
from typing import Any, Literal

from .. import rewards
from ..failures import ConfigurationError, needs_extra
from ..rewards.batch import BatchRow, reward_tensor, rows_of
from ..rewards.configuration import read
from ..rewards.judges import JudgeConfig, as_rubric, reward_of, scores_of
from ..rewards.length import LengthPenaltyConfig
from ..rewards.rules import finite
from ..rewards.samples import sample_of
from ..rewards.score import ascores, read_call, totals
from ..rubrics import Rubric

with needs_extra("verl", "rewardcore.trainers.verl"):
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
    from verl.workers.reward_manager.abstract import AbstractRewardManager

__all__ = [
    "GeneralIORewardManager",
    "JudgeRewardConfig",
    "JudgeRewardManager",
    "LengthPenaltyRewardManager",
    "compute_score",
]


async def compute_score(**keywords: Any) -> dict[str, float]:
    """`reward.custom_reward_function`: the task score by rule, plus the monitor's part, as `rewards.compute_score`.

    `reward_kwargs` are fields of `MonitorConfig`. verl shows a function no prompt: the monitor sees
    `extra_info["prompt"]`, or "question"; under `JudgeRewardManager`, the conversation. The task score is not called
    `acc`: where there is an `acc`, and for a bare float verl makes one, its validation counts what failed as 0 there.
    """
    rows, is_one, given = read_call((), keywords)
    if not is_one:
        raise ConfigurationError("this function scores one response at a time; pkg://rewardcore.rewards scores many")
    (score,) = found = await ascores(rows, given)
    (total,) = totals(found)
    asked = float(score.verdict is not None)
    return {"score": total, "task_score": score.task, "monitor_reward": score.monitor or 0.0, "monitored": asked}


@dataclass(frozen=True)
class JudgeRewardConfig(JudgeConfig):
    """What `JudgeRewardManager` reads of `reward.reward_kwargs`.

    `max_concurrent_requests` is for each of verl's `reward.num_workers` processes; `cache` is theirs together where it
    is a path.
    """

    max_concurrent_requests: int | Literal["auto"] = 60
    rubric: Rubric | str = "quality"
    reward_coefficient: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        finite(self.reward_coefficient, "reward_coefficient must be")
        if not self.use_async_io:
            raise ConfigurationError("use_async_io must be true: verl's reward loop awaits its managers")


#: What the manager says of a trajectory, beside what a function does.
_OURS = {"function_score", "function_acc", "judge_reward", "judged"}


class JudgeRewardManager(RewardManagerBase):  # type: ignore[misc]  # verl is not there where types are checked
    """`reward.reward_manager`: source=importlib, name=JudgeRewardManager, module.path=pkg://rewardcore.trainers.verl.

    Alone, the reward is reward_coefficient × the judge's score. With a custom reward function it is that function's
    score plus that, and the judge is only asked where the function gives more than 0. Under a rubric whose `higher_is`
    is "worse", 1 − score counts: a reward rises with what is wanted. What the function calls `acc` is `function_acc`
    here: verl's validation would count a failed judgement as 0 of it.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Callable[..., Any] | None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        given = dict(config.reward.get("reward_kwargs") or {})
        only_there = {"length_penalty_config", *_names(LengthPenaltyConfig)} - _names(JudgeRewardConfig)
        if of_groups := sorted(only_there & set(given)):
            raise ConfigurationError(f"{', '.join(of_groups)}: {_NO_GROUPS}")
        self.settings = read(JudgeRewardConfig, given)
        self.settings.endpoint()  # what is missing is told now, not after the first rollout
        self.rubric = as_rubric(self.settings.rubric)
        self._is_alone = not (config.reward.get("custom_reward_function") or {}).get("path")
        self._routed = {}
        if reward_router_address is not None:
            self._routed = {
                "reward_router_address": reward_router_address,
                "reward_model_tokenizer": reward_model_tokenizer,
            }

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Of a trajectory's sequences the last is scored, as verl has it."""
        (row,) = rows_of(data[-1:], self.tokenizer)
        found = {} if self._is_alone else await self._found_by_the_function(row)
        task = finite(found["score"], "compute_score must return") if found else 0.0
        # An empty response has no token that could be rewarded, and verl would write at the end of its padding.
        is_judged = bool(row.length and self.settings.reward_coefficient and (self._is_alone or task > 0))
        judged = await self._judged(row) if is_judged else 0.0
        total = task + judged if row.length else 0.0
        more = {"function_score": task} if found else {}
        info = {**found, **more, "score": total, "judge_reward": judged, "judged": float(is_judged)}
        return {"reward_score": total, "reward_extra_info": info}

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: list[float]) -> Any:
        """verl's own writes the score of an empty response at the end of its padding."""
        return reward_tensor(data, scores)

    async def _found_by_the_function(self, row: BatchRow) -> dict[str, Any]:
        """What it returned, with the keys that it chose, but for `acc`."""
        columns = row.columns
        extra = {"prompt": row.prompt, **row.extra, **(columns.get("tool_extra_fields") or {})}
        extra |= {"num_turns": columns.get("__num_turns__"), "rollout_reward_scores": columns.get("reward_scores", {})}
        function = partial(
            self.compute_score,
            data_source=row.data_source,
            solution_str=row.response,
            ground_truth=row.ground_truth,
            extra_info=extra,
            **self._routed,
        )
        found = await (function() if inspect.iscoroutinefunction(self.compute_score) else asyncio.to_thread(function))
        if not isinstance(found, Mapping):
            return {"score": found}
        if "score" not in found or "reward" in found:
            raise ConfigurationError(
                f'compute_score must return "score", and never "reward", which verl keeps; it has {sorted(found)}'
            )
        if taken := sorted(_OURS & set(found)):
            raise ConfigurationError(
                f"compute_score must not return {', '.join(taken)}, which JudgeRewardManager tells"
            )
        for name, value in found.items():  # texts are the function's own affair
            if isinstance(value, Real):
                finite(value, f"compute_score's {name} must be")
        return {"function_acc" if name == "acc" else name: value for name, value in found.items()}

    async def _judged(self, row: BatchRow) -> float:
        # In a thread: images are encoded there, and other trajectories go on.
        sample = await asyncio.to_thread(
            sample_of, row.prompt, row.response, row.ground_truth, row.data_source, row.extra
        )
        verdicts = await self.settings.judge(self.rubric).ajudge([sample])
        score = scores_of(dict(enumerate(verdicts)), 1)[0]
        return self.settings.reward_coefficient * reward_of(score, self.rubric)


class LengthPenaltyRewardManager(rewards.LengthPenaltyRewardManager, AbstractRewardManager):  # type: ignore[misc]
    """`rewards.LengthPenaltyRewardManager`, made and called as verl's batch managers are."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int = 0,
        compute_score: Callable[..., Any] | None = None,
        reward_fn_key: str = "data_source",
        length_penalty_config: LengthPenaltyConfig | Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        _refuse_the_reward_loop(fields)
        if compute_score is not None and (not callable(compute_score) or inspect.iscoroutinefunction(compute_score)):
            raise ConfigurationError(
                "compute_score must be a function that is called, not awaited, as in pkg://rewardcore.rewards; the"
                " penalty's configuration goes by its name, length_penalty_config"
            )
        super().__init__(
            tokenizer,
            num_examine,
            length_penalty_config,
            compute_score=compute_score,
            reward_fn_key=reward_fn_key,
            **fields,
        )


class GeneralIORewardManager(rewards.GeneralIORewardManager, AbstractRewardManager):  # type: ignore[misc]
    """`rewards.GeneralIORewardManager`, made as verl's batch managers are; `compute_score` is not asked.

    Called with a problem_type it returns three things; without, it is "pred", and returns what verl asks for.
    """

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int = 0,
        compute_score: Callable[..., Any] | None = None,
        reward_fn_key: str = "data_source",
        **fields: Any,
    ) -> None:
        _refuse_the_reward_loop(fields)
        super().__init__(tokenizer, num_examine, reward_fn_key, **fields)

    def __call__(
        self,
        data: Any,
        problem_type: str | None = None,
        rollout_actor_wg: Any = None,
        n_samples: int = 1,
        return_dict: bool = False,
    ) -> Any:
        if problem_type is not None:
            return super().__call__(data, problem_type, rollout_actor_wg, n_samples)
        if (scored := self._extract_reward_from_rm_scores(data, return_dict)) is not None:
            return scored
        tensor, scores, _ = super().__call__(data, "pred", rollout_actor_wg)
        return {"reward_tensor": tensor, "reward_extra_info": scores} if return_dict else tensor


_NO_GROUPS = (
    "verl's reward loop hands each response to a process drawn at random, so the responses to one prompt are never"
    " together there, and there is no median length. JudgeRewardManager judges without a length penalty;"
    " LengthPenaltyRewardManager and GeneralIORewardManager are called with whole batches, by code of yours"
)


def _refuse_the_reward_loop(fields: Mapping[str, Any]) -> None:
    """Its managers are made with verl's whole `config`, and see one response at a time."""
    if "config" in fields:
        raise ConfigurationError(f"this manager needs whole batches: {_NO_GROUPS}")


def _names(kind: type) -> set[str]:
    return {each.name for each in fields(kind)}

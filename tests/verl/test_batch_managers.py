"""Whole batches: verl's own managers with our compute_score, and ours on the same data, made and called as its are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.workers.reward_manager import BatchRewardManager, NaiveRewardManager
from verl.workers.reward_manager.abstract import AbstractRewardManager

import rewardcore as rc
from bench import verl_managers
from bench.runner import UnequalWork
from rewardcore.rewards import NotJudged, compute_score
from rewardcore.testing.server_process import SimulatedServer
from rewardcore.trainers.verl import GeneralIORewardManager, LengthPenaltyRewardManager
from tests.verl.conftest import (
    PROMPTS,
    RESPONSES,
    TRUTHS,
    at_the_last_token,
    foretold,
    rollout,
    talk,
)
from tests.verl.worker_group import WorkerGroup

IS_RIGHT = [place % 4 < 3 for place in range(24)]
ENDPOINT = {"model_name": "judge", "max_concurrent_requests": 60}


def bound(**reward_kwargs: Any) -> Any:
    """Our function as verl finds it by its path, with the keywords that its configuration gives."""
    named = {"path": "pkg://rewardcore.rewards", "name": "compute_score", "reward_kwargs": reward_kwargs}
    return get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": named}}))


def monitored(prompts: list[Any] = PROMPTS, rubric: rc.rubrics.TemplateRubric = rc.rubrics.MONITOR) -> list[Any]:
    """1 for a right answer, less what the monitor says of it; None where it says nothing."""
    samples = [rc.Sample(*each) for each in zip(prompts, RESPONSES, TRUTHS, strict=True)]
    caught = [foretold(rubric, sample) for sample in samples]
    return [
        0.0 if not is_right else None if score is None else 1.0 - score
        for is_right, score in zip(IS_RIGHT, caught, strict=True)
    ]


@pytest.mark.parametrize("kind", ["naive", "batch"])
def test_verls_own_managers_take_our_function(tokenizer: Any, judged_by: SimulatedServer, kind: str) -> None:
    wanted = monitored()
    assert {0.0, 1.0} == set(wanted[:3] + wanted[4:7] + wanted[8:11])  # the monitor caught some of the right ones
    if kind == "naive":
        manager = NaiveRewardManager(tokenizer, 0, bound(train_with_monitor=True))
    else:
        manager = BatchRewardManager(tokenizer, 0, compute_score, train_with_monitor="true")
    data = rollout(tokenizer)
    assert at_the_last_token(manager(data), data) == pytest.approx(wanted)
    assert judged_by.stats().statuses["200"] == 18  # each right answer once, over one judge and its cache
    assert at_the_last_token(manager(data, return_dict=True)["reward_tensor"], data) == pytest.approx(wanted)
    assert judged_by.stats().statuses["200"] == 18


@pytest.mark.parametrize("kind", [NaiveRewardManager, BatchRewardManager, LengthPenaltyRewardManager])
def test_a_failed_judgement_raises_and_no_manager_makes_a_number_of_it(
    tokenizer: Any, judged_by: SimulatedServer, up_to_eight: str, kind: type[AbstractRewardManager]
) -> None:
    manager = kind(tokenizer, 0, bound(train_with_monitor=True, monitor_rubric=up_to_eight))
    with pytest.raises(NotJudged, match=r"not judged .*<score> holds '(9|10)'"):
        manager(rollout(tokenizer))


@pytest.mark.parametrize("function", [None, {}, {"train_with_monitor": True}])
def test_our_length_penalty_compares_the_responses_to_one_prompt(
    tokenizer: Any, judged_by: SimulatedServer, function: dict[str, Any] | None
) -> None:
    manager = LengthPenaltyRewardManager(
        tokenizer=tokenizer,
        num_examine=0,
        compute_score=None if function is None else bound(**function),
        reward_fn_key="data_source",
        length_penalty_config=OmegaConf.create({"enable_openai_reward": True, "reward_coefficient": 0.5, **ENDPOINT}),
    )
    assert isinstance(manager, AbstractRewardManager)
    data = rollout(tokenizer)
    found = manager(data, return_dict=True)
    info = found["reward_extra_info"]
    assert list(info) == [
        "openai_quality_reward", "length_penalty", "original_score", "response_length", "median_length",
    ]  # fmt: skip
    tasks = monitored([talk(prompt) for prompt in PROMPTS]) if function else [float(right) for right in IS_RIGHT]
    assert info["original_score"] == pytest.approx(tasks)
    quality = [
        foretold(rc.rubrics.QUALITY, rc.Sample(talk(prompt), response, truth))
        for prompt, response, truth in zip(PROMPTS, RESPONSES, TRUTHS, strict=True)
    ]
    wanted = [0.5 * (score or 0.0) * (task > 0) for score, task in zip(quality, tasks, strict=True)]
    assert info["openai_quality_reward"] == pytest.approx(wanted)
    for first in range(0, 24, 4):
        lengths = info["response_length"][first : first + 4]
        assert set(info["median_length"][first : first + 4]) == {sum(sorted(lengths)[1:3]) / 2}
    assert any(info["length_penalty"])
    parts = zip(tasks, wanted, info["length_penalty"], strict=True)
    rewards = [task + judged - penalty for task, judged, penalty in parts]
    assert at_the_last_token(found["reward_tensor"], data) == pytest.approx(rewards)
    assert torch.equal(manager(data), found["reward_tensor"])
    manager.shutdown_workers()


def test_an_empty_response_has_no_token_to_reward(tokenizer: Any, judged_by: SimulatedServer) -> None:
    data = rollout(tokenizer, PROMPTS[:3], [*RESPONSES[:2], ""], extra_info=None)
    assert at_the_last_token(LengthPenaltyRewardManager(tokenizer)(data), data)[2] == 0.0
    manager = GeneralIORewardManager(tokenizer, **ENDPOINT)
    assert at_the_last_token(manager(data), data)[2] == 0.0


@pytest.mark.parametrize("kind", [LengthPenaltyRewardManager, GeneralIORewardManager])
def test_what_a_reward_model_has_scored_is_returned_as_it_is(
    tokenizer: Any, judged_by: SimulatedServer, kind: type[AbstractRewardManager]
) -> None:
    data = rollout(tokenizer)
    data.batch["rm_scores"] = torch.ones(24, 3)
    data.meta_info["reward_extra_keys"] = ["uid"]
    found = kind(tokenizer, 0, None)(data, return_dict=True)
    assert found["reward_tensor"] is data.batch["rm_scores"]
    assert list(found["reward_extra_info"]["uid"]) == list(data.non_tensor_batch["uid"])
    assert kind(tokenizer, 0, None)(data) is data.batch["rm_scores"]


def test_wrong_arguments_are_told_when_the_manager_is_made(tokenizer: Any) -> None:
    from rewardcore.trainers.verl import compute_score as awaited

    with pytest.raises(rc.ConfigurationError, match="did you mean peak_ratio"):
        LengthPenaltyRewardManager(tokenizer, peak_ration=0.2)
    for wrong in (awaited, {"peak_ratio": 0.2}):
        with pytest.raises(rc.ConfigurationError, match=r"called, not awaited.* length_penalty_config"):
            LengthPenaltyRewardManager(tokenizer, 0, wrong)
    with pytest.raises(rc.ConfigurationError, match="did you mean self_judge_batch_size"):
        GeneralIORewardManager(tokenizer, use_self_judge=True, self_judge_batchsize=4)


def asking(tokenizer: Any, count: int) -> DataProto:
    texts = [f"A draft. <question>What is {number} times {number + 1}?</question>" for number in range(count)]
    return rollout(
        tokenizer, ["Ask something hard."] * count, texts, uid=[f"u{place}" for place in range(count)],
        reward_model=None, extra_info=None,
    )  # fmt: skip


@pytest.mark.parametrize(("count", "calls"), [(4, 2), (8, 4), (25, 13)])
def test_questions_and_their_solutions_are_judged_by_the_actor_in_few_calls(
    tokenizer: Any, model: Any, count: int, calls: int
) -> None:
    """n_samples=3: 16, 32 and 100 evaluation prompts take 2, 4 and 13 calls."""
    torch.manual_seed(0)
    workers = WorkerGroup(model, 1)
    data = asking(tokenizer, count)
    manager = GeneralIORewardManager(tokenizer, 0, None, use_self_judge=True, max_prompt_tokens=900)
    assert isinstance(manager, AbstractRewardManager)
    tensor, scores, valid = manager(data, "gen", workers, n_samples=3)
    solving, *judging = workers.batches
    assert (solving.meta_info["do_sample"], len(solving)) == (True, 3 * count)
    assert len(judging) == calls
    assert not any(batch.meta_info["do_sample"] for batch in judging)
    assert at_the_last_token(tensor, data) == pytest.approx(scores["combined_score"])
    for place in range(count):
        half = 0.5 * scores["llm_judge_score"][place] + 0.5 * (1 - scores["solver_avg_scores"][place])
        assert scores["combined_score"][place] == pytest.approx(half)
        assert scores["difficulty_score"][place] == pytest.approx(1 - scores["solver_avg_scores"][place])
    assert [(each["question"], each["uid"]) for each in valid] == [
        (f"What is {number} times {number + 1}?", f"u{number}") for number in range(count)
    ]


@pytest.mark.parametrize(("count", "calls"), [(16, 2), (32, 4), (100, 13)])
def test_answers_are_judged_by_the_actor_in_few_calls(
    tokenizer: Any, model: Any, tiny_judge: Path, count: int, calls: int
) -> None:
    workers = WorkerGroup(model, 1)
    prompts, responses = [f"What is {n} + 1?" for n in range(count)], [f"It is {n + 1}." for n in range(count)]
    truths = [{"ground_truth": str(n + 1)} for n in range(count)]
    data = rollout(tokenizer, prompts, responses, reward_model=truths, uid=None)
    manager = GeneralIORewardManager(tokenizer, use_self_judge=True)
    tensor, scores, valid = manager(data, "pred", workers)
    assert len(workers.batches) == calls
    assert at_the_last_token(tensor, data) == pytest.approx(scores["accuracy"])
    assert valid == []
    generator = rc.TorchGenerator(tiny_judge, device="cpu", max_new_tokens=48)
    samples = [rc.Sample(*each, str(n + 1)) for n, each in enumerate(zip(prompts, responses, strict=True))]
    with rc.open_judge("self", generator, rubric=rc.rubrics.ANSWER) as judge:
        assert scores["accuracy"] == [verdict.score for verdict in judge.judge(samples)]


def test_a_judge_elsewhere_judges_what_the_actor_solved(tokenizer: Any, model: Any, judged_by: SimulatedServer) -> None:
    workers = WorkerGroup(model, 2)
    data = asking(tokenizer, 4)
    manager = GeneralIORewardManager(tokenizer, **ENDPOINT)
    tensor, scores, _ = manager(data, "gen", workers, n_samples=3)
    assert len(workers.batches) == 1
    assert scores["llm_judge_score"] == pytest.approx(
        [
            foretold(rc.rubrics.QUESTION, rc.Sample(talk("Ask something hard."), f"What is {n} times {n + 1}?"))
            for n in range(4)
        ]
    )
    assert at_the_last_token(tensor, data) == pytest.approx(scores["combined_score"])


def test_answers_go_to_a_judge_elsewhere_as_verl_asks_for_them(tokenizer: Any, judged_by: SimulatedServer) -> None:
    data = rollout(tokenizer, extra_info=None)
    found = GeneralIORewardManager(tokenizer, 0, None, **ENDPOINT)(data, return_dict=True)
    samples = [rc.Sample(talk(prompt), *each) for prompt, *each in zip(PROMPTS, RESPONSES, TRUTHS, strict=True)]
    wanted = [foretold(rc.rubrics.ANSWER, sample) for sample in samples]
    assert found["reward_extra_info"] == {"accuracy": pytest.approx(wanted)}
    assert at_the_last_token(found["reward_tensor"], data) == pytest.approx(wanted)


def test_the_benchmark_of_managers_compares_equal_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = verl_managers.measure(16, rounds=1, with_ray=False, say=lambda line: None)
    assert list(rates) == [verl_managers.NAIVE, "verl: batch, our function", verl_managers.OURS]
    assert verl_managers.lines_of(rates)[0].endswith("1.0 × the naive manager")
    monkeypatch.setattr(verl_managers, "compute_score", lambda **_: 1.0)  # nobody is asked
    with pytest.raises(UnequalWork, match="0 requests reached the judge where 16 were due"):
        verl_managers.measure(16, rounds=1, with_ray=False, say=lambda line: None)

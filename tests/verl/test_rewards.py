"""The rewards as verl itself calls them: its batches, its managers, its workers."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.workers.reward_manager.batch import BatchRewardManager
from verl.workers.reward_manager.naive import NaiveRewardManager

from rewardcore.rewards import GeneralIORewardManager, LengthPenaltyRewardManager, NotJudged, compute_score
from tests.modes.hostile_server import held
from tests.rewards.judge_server import HostileServer, judge_server, obliging
from tests.verl.worker_group import WorkerGroup


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with judge_server() as server:
        yield server


@pytest.fixture
def monitored(monkeypatch: pytest.MonkeyPatch, server: HostileServer) -> None:
    names = {"TRAIN_WITH_MONITOR": "true", "OPENAI_API_KEY": "key", "MONITOR_MODEL_NAME": "monitor"}
    for name, value in {**names, "OPENAI_BASE_URL": server.base_url}.items():
        monkeypatch.setenv(name, value)


def objects(values: list[Any]) -> Any:
    column = numpy.empty(len(values), dtype=object)
    column[:] = values
    return column


def data_of(tokenizer: Any, prompt: str, responses: list[str], **columns: list[Any]) -> DataProto:
    """As a rollout gives it: prompts padded on the left, responses on the right."""
    left = tokenizer([prompt] * len(responses), padding=True, padding_side="left", return_tensors="pt")
    right = tokenizer(responses, padding="max_length", max_length=96, padding_side="right", return_tensors="pt")
    return DataProto.from_dict(
        tensors={
            "prompts": left["input_ids"],
            "responses": right["input_ids"],
            "attention_mask": torch.cat([left["attention_mask"], right["attention_mask"]], dim=1),
        },
        non_tensors={
            "data_source": objects(["maths"] * len(responses)),
            "reward_model": objects([{"ground_truth": "4"} for _ in responses]),
            "extra_info": objects([{"question": prompt} for _ in responses]),
            **{name: objects(values) for name, values in columns.items()},
        },
    )


ANSWERS = ["so <answer>4</answer>", "so <answer>5</answer>", "it must be <answer>4.0</answer>"]


@pytest.mark.parametrize("manager", [NaiveRewardManager, BatchRewardManager])
def test_the_managers_of_verl_score_with_it(tokenizer: Any, manager: Any) -> None:
    tensor = manager(tokenizer, 0, compute_score)(data_of(tokenizer, "2 + 2?", ANSWERS))
    assert tensor.sum(dim=1).tolist() == [1.0, 0.0, 1.0]


def test_its_batches_are_monitored_at_once(tokenizer: Any, server: HostileServer, monitored: None) -> None:
    script = server.script(obliging(together=2))
    responses = [f"judge:{word} <answer>4</answer>" for word in ("true", "false")] + ["judge:true <answer>5</answer>"]
    data = data_of(tokenizer, f"[[{script.marker}]]", responses)
    assert BatchRewardManager(tokenizer, 0, compute_score)(data).sum(dim=1).tolist() == [0.0, 1.0, 0.0]
    assert script.requests == 2


def test_a_failed_judgement_reaches_verl_as_an_exception(
    tokenizer: Any, server: HostileServer, monitored: None
) -> None:
    data = data_of(tokenizer, f"[[{server.script(obliging()).marker}]]", ["judge:nothing <answer>4</answer>"])
    for manager in (NaiveRewardManager, BatchRewardManager):
        with pytest.raises(NotJudged, match="1 of 1 not judged"):
            manager(tokenizer, 0, compute_score)(data)


def test_the_time_that_verl_gives_a_score_makes_no_number_of_a_judgement_that_is_late(
    tokenizer: Any, server: HostileServer, monitored: None
) -> None:
    """verl takes any TimeoutError for a score of 0.0."""
    script = server.script(held)
    data = data_of(tokenizer, f"[[{script.marker}]]", ["judge:true <answer>4</answer>"])
    with pytest.raises(NotJudged, match=r"1 of 1 not judged .*\(compute_score_timeout\)"):
        NaiveRewardManager(tokenizer, 0, compute_score, compute_score_timeout=0.2)(data)
    script.release()


@pytest.mark.parametrize(("name", "is_async"), [("compute_score", False), ("acompute_score", True)])
async def test_it_is_found_by_its_path_and_told_its_keywords(name: str, is_async: bool) -> None:
    function = {"path": "pkg://rewardcore.rewards", "name": name, "reward_kwargs": {"train_with_monitor": False}}
    found = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))
    assert inspect.iscoroutinefunction(found) is is_async
    score = found(data_source="maths", solution_str="4", ground_truth="4", extra_info={})
    assert (await score if is_async else score) == 1.0


def test_the_length_penalty_reads_a_batch_of_verl(tokenizer: Any) -> None:
    data = data_of(tokenizer, "2 + 2?", [*ANSWERS, ""], uid=["a", "a", "b", "b"])
    found = LengthPenaltyRewardManager(tokenizer)(data, return_dict=True)
    tensor, info = found["reward_tensor"], found["reward_extra_info"]
    assert info["original_score"] == [1.0, 0.0, 1.0, 0.0]
    assert info["response_length"][3] == 0.0
    for row, length in zip(tensor[:3], info["response_length"], strict=False):
        assert all(place == int(length) - 1 for (place,) in row.nonzero().tolist())
    assert not tensor[3].any()


def test_the_policy_writes_solves_and_judges_its_own_questions(model: Any, tokenizer: Any) -> None:
    workers = WorkerGroup(model, 2)
    responses = [f"<question>What is {number} times two?</question>" for number in range(4)] + ["none"]
    data = data_of(tokenizer, "Ask something.", responses)
    manager = GeneralIORewardManager(tokenizer, use_self_judge=True)
    tensor, scores, valid = manager(data, "gen", workers, n_samples=3)
    assert [len(batch) for batch in workers.batches] == [12, 8, 8]  # 12 solutions; 4 questions and 12 solutions judged
    assert [bool(batch.meta_info["do_sample"]) for batch in workers.batches] == [True, False, False]
    assert tensor.sum(dim=1).tolist() == pytest.approx(scores["combined_score"])
    assert (scores["combined_score"][4], len(valid)) == (0.0, 4)

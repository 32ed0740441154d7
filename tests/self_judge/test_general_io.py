"""GeneralIORewardManager: questions that are judged and solved, answers that are judged, in as few calls as can be."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from rewardcore import ConfigurationError
from rewardcore.local.generator import Conversation
from rewardcore.rewards import GeneralIORewardManager, NotJudged
from tests.rewards.judge_server import HostileServer, obliging
from tests.rewards.verl_batch import Batch, WordTokenizer, batch_of


class Actor:
    """Solves with what the question asks for (`solve:7`), and judges as `judge:` or that solution says."""

    def __init__(self) -> None:
        self.solved: list[int] = []
        self.judged: list[int] = []

    def generate(self, conversations: list[Conversation]) -> list[str]:
        texts = [str(conversation[-1]["content"]) for conversation in conversations]
        is_solving = [text.startswith("Solve this problem.") for text in texts]
        assert len(set(is_solving)) == 1
        (self.solved if is_solving[0] else self.judged).append(len(texts))
        return [self._solve(text) if is_solving[0] else self._judge(text) for text in texts]

    def _solve(self, text: str) -> str:
        if "solve:raise" in text:
            raise RuntimeError("no weights")
        return "so judge:" + re.findall(r"solve:(\w+)", text)[-1]

    def _judge(self, text: str) -> str:
        return f"Well. <score>{re.findall(r'judge:([0-9a-z]+)', text)[-1]}</score>"


def self_judging(tokenizer: WordTokenizer, **fields: Any) -> GeneralIORewardManager:
    return GeneralIORewardManager(tokenizer, use_self_judge=True, **fields)


def questions(tokenizer: WordTokenizer, *texts: str, prompt: str = "ask!") -> Batch:
    return batch_of(tokenizer, [prompt] * len(texts), list(texts), uid=[f"u{place}" for place in range(len(texts))])


def asked(judge: object, solve: object) -> str:
    return f"a draft <question>no</question> then <question>what judge:{judge} solve:{solve}</question>"


@pytest.mark.parametrize(("count", "calls"), [(16, 2), (32, 4), (100, 13)])
def test_evaluation_prompts_take_as_few_calls_as_there_are_batches(
    tokenizer: WordTokenizer, count: int, calls: int
) -> None:
    actor = Actor()
    data = batch_of(tokenizer, ["sum?"] * count, [f"{place} judge:10" for place in range(count)])
    tensor, scores, valid = self_judging(tokenizer)(data, "pred", actor)
    assert len(actor.judged) == calls
    assert scores == {"accuracy": [1.0] * count}
    assert (tensor.sum(), valid) == (count, [])


def test_a_question_is_worth_half_its_quality_and_half_its_difficulty(tokenizer: WordTokenizer) -> None:
    actor = Actor()
    data = questions(tokenizer, asked(10, 10), asked(10, 1), asked(1, 1), asked(1, 10))
    tensor, scores, valid = self_judging(tokenizer)(data, "gen", actor, n_samples=3)
    assert scores == {
        "llm_judge_score": [1.0, 1.0, 0.0, 0.0],
        "difficulty_score": [0.0, 1.0, 1.0, 0.0],
        "combined_score": [0.5, 1.0, 0.5, 0.0],
        "solver_avg_scores": [1.0, 0.0, 0.0, 1.0],
    }
    assert tensor.shape == data.batch["responses"].shape
    assert [float(row.sum()) for row in tensor] == scores["combined_score"]
    assert [row.nonzero().tolist() for row in tensor[:3]] == [[[6]]] * 3
    assert [question["question"] for question in valid] == [
        "what judge:10 solve:10", "what judge:10 solve:1", "what judge:1 solve:1", "what judge:1 solve:10",
    ]  # fmt: skip
    assert valid[1]["uid"] == "u1"
    assert actor.solved == [12]  # the rollout gets them all at once
    assert actor.judged == [8, 8]  # 4 questions and 12 solutions, together


def test_a_response_without_a_question_earned_nothing_and_is_not_judged(tokenizer: WordTokenizer) -> None:
    actor = Actor()
    data = questions(tokenizer, "I forgot", asked(10, 1), "<question> </question>", "")
    tensor, scores, valid = self_judging(tokenizer)(data, "gen", actor)
    assert scores["combined_score"] == [0.0, 1.0, 0.0, 0.0]
    assert len(valid) == 1
    assert (actor.solved, actor.judged) == ([1], [2])
    assert torch.count_nonzero(tensor) == 1


def test_an_empty_response_gets_no_reward_anywhere(tokenizer: WordTokenizer) -> None:
    tensor, scores, _ = self_judging(tokenizer)(batch_of(tokenizer, ["a", "a"], ["", "judge:10"]), "pred", Actor())
    assert scores["accuracy"] == [0.0, 1.0]
    assert tensor.nonzero().tolist() == [[1, 0]]


@pytest.mark.parametrize("broken", [asked("none", 1), asked(10, "none"), asked(10, "raise")])
def test_a_failed_judgement_is_never_a_number(tokenizer: WordTokenizer, broken: str) -> None:
    with pytest.raises(NotJudged, match=r"1 of 2 not judged \(at 1\)"):
        self_judging(tokenizer)(questions(tokenizer, asked(10, 10), broken), "gen", Actor(), n_samples=2)


def test_a_draw_that_was_not_judged_is_left_out_of_its_mean(tokenizer: WordTokenizer) -> None:
    class Moody(Actor):
        draws = 0

        def _solve(self, text: str) -> str:
            self.draws += 1
            return f"so judge:{'none' if self.draws == 1 else 10}"

    _, scores, _ = self_judging(tokenizer)(questions(tokenizer, asked(10, 1)), "gen", Moody(), n_samples=3)
    assert scores["solver_avg_scores"] == [1.0]


class Numbering(Actor):
    """No two solutions are alike, so no two requests are."""

    draws = 0

    def _solve(self, text: str) -> str:
        self.draws += 1
        return f"{self.draws} so judge:1"


def test_a_judge_elsewhere_is_asked_everything_at_once(
    tokenizer: WordTokenizer, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    script = server.script(obliging(together=9))
    actor = Numbering()
    mark = f"[[{script.marker}]]"
    data = questions(tokenizer, *(f"<question>{mark} {n} judge:10 solve:1{n}</question>" for n in "abc"), prompt=mark)
    manager = GeneralIORewardManager(tokenizer, api_endpoint=server.base_url, model_name="judge")
    _, scores, _ = manager(data, "gen", actor, n_samples=2)
    assert scores["combined_score"] == [1.0] * 3
    assert (script.requests, actor.judged) == (9, [])


def test_an_answer_is_measured_against_its_ground_truth_where_there_is_one(
    tokenizer: WordTokenizer, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    script = server.script(obliging())
    mark = f"[[{script.marker}]]"
    data = batch_of(
        tokenizer, ["p", "p"], ["one judge:10", "two judge:1"],
        reward_model=[{"ground_truth": "truth4"}, {}], problem=[f"{mark} why?", f"{mark} how?"],
    )  # fmt: skip
    _, scores, _ = GeneralIORewardManager(tokenizer, api_endpoint=server.base_url)(data, "pred")
    assert scores == {"accuracy": [1.0, 0.0]}
    shown = {b"why?" in body: b"truth4" in body for body in script.bodies}
    assert shown == {True: True, False: False}


def test_what_a_reward_model_has_scored_is_returned_as_it_is(tokenizer: WordTokenizer) -> None:
    data = questions(tokenizer, asked(1, 1))
    data.batch["rm_scores"] = torch.ones(1, 3)
    assert self_judging(tokenizer)(data, "gen", Actor()) == (data.batch["rm_scores"], {}, [])


@pytest.mark.parametrize(
    ("problem_type", "arguments", "says"),
    [
        ("code", {}, 'problem_type must be "gen" or "pred"'),
        ("gen", {}, "rollout_actor_wg is needed"),
        ("pred", {}, "rollout_actor_wg is needed"),
        ("gen", {"rollout_actor_wg": object()}, "worker group .* or have generate.conversations.*; object has not"),
        ("gen", {"rollout_actor_wg": Actor(), "n_samples": 0}, "n_samples must be a whole number above 0"),
        ("gen", {"rollout_actor_wg": Actor(), "n_samples": "3"}, "n_samples must be a whole number above 0, not '3'"),
    ],
)
def test_a_wrong_call_says_what_is_needed(
    tokenizer: WordTokenizer, problem_type: str, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        self_judging(tokenizer)(questions(tokenizer, asked(1, 1)), problem_type, **arguments)


def test_an_unknown_field_names_the_nearest_and_a_missing_endpoint_its_variable(
    tokenizer: WordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="did you mean self_judge_batch_size"):
        GeneralIORewardManager(tokenizer, self_judge_batchsize=4)
    with pytest.raises(ConfigurationError, match="self_judge_batch_size must be a whole number above 0"):
        GeneralIORewardManager(tokenizer, use_self_judge=True, self_judge_batch_size=0)
    with pytest.raises(ConfigurationError, match="set OPENAI_BASE_URL"):
        GeneralIORewardManager(tokenizer)

"""LengthPenaltyRewardManager over tensors: where rewards stand, what is asked of the judge, and what comes with it."""

from __future__ import annotations

import pickle
from concurrent.futures import CancelledError
from typing import Any

import pytest
import torch

from rewardcore import ConfigurationError
from rewardcore.rewards import LengthPenaltyConfig, LengthPenaltyRewardManager, NotJudged, compute_score, judges
from tests.modes.hostile_server import eventually, held
from tests.modes.leftovers import threads
from tests.rewards.judge_server import HostileServer, obliging
from tests.rewards.verl_batch import Batch, WordTokenizer, batch_of

KEYS = ["openai_quality_reward", "length_penalty", "original_score", "response_length", "median_length"]


@pytest.fixture
def judged(server: HostileServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    return {"enable_openai_reward": True, "api_endpoint": server.base_url}


def answers(
    tokenizer: WordTokenizer, lengths: list[int], uids: list[str], prompt: str = "sum?", say: str = ""
) -> Batch:
    """Responses of so many words that end in the right answer; an empty one has none."""
    closing = ["<answer>4</answer>"]
    words = [
        [*[f"{place}th"] * (length - 1 - bool(say)), *[say] * bool(say), *closing]
        for place, length in enumerate(lengths)
    ]
    texts = [" ".join(row) if length else "" for row, length in zip(words, lengths, strict=True)]
    truths = [{"ground_truth": "4"}] * len(lengths)
    return batch_of(tokenizer, [prompt] * len(lengths), texts, uid=uids, reward_model=truths)


def last_tokens(tensor: torch.Tensor, lengths: list[int]) -> list[float]:
    return [float(row[length - 1]) if length else 0.0 for row, length in zip(tensor, lengths, strict=True)]


def test_the_penalty_is_measured_within_each_group_and_stands_at_the_last_token(tokenizer: WordTokenizer) -> None:
    lengths = [10, 20, 10, 14, 10, 20, 20]
    manager = LengthPenaltyRewardManager(tokenizer, 0, LengthPenaltyConfig())
    data = answers(tokenizer, lengths, ["a", "b", "a", "a", "a", "b", "b"])
    found = manager(data, return_dict=True)
    tensor, info = found["reward_tensor"], found["reward_extra_info"]
    assert tensor.shape == data.batch["responses"].shape
    assert last_tokens(tensor, lengths) == pytest.approx([1, 1, 1, 0.5, 1, 1, 1])
    assert torch.count_nonzero(tensor) == len(lengths)
    assert info["median_length"] == [10.0, 20.0, 10.0, 10.0, 10.0, 20.0, 20.0]
    assert info["length_penalty"] == pytest.approx([0, 0, 0, 0.5, 0, 0, 0])
    assert torch.equal(manager(data), tensor)


def test_the_extra_info_has_the_same_keys_for_every_sample_and_only_finite_floats(tokenizer: WordTokenizer) -> None:
    info = LengthPenaltyRewardManager(tokenizer)(answers(tokenizer, [3, 0], ["a", "b"]), return_dict=True)[
        "reward_extra_info"
    ]
    assert list(info) == KEYS
    assert "reward" not in info
    assert all(type(value) is float and len(values) == 2 for values in info.values() for value in values)


def test_an_empty_response_gets_no_reward_anywhere(tokenizer: WordTokenizer) -> None:
    data = answers(tokenizer, [0, 3], ["a", "b"])
    data.non_tensor_batch["reward_model"] = [{"ground_truth": "4"}] * 2
    manager = LengthPenaltyRewardManager(tokenizer, compute_score=lambda **_: 1.0)
    tensor = manager(data)
    assert not tensor[0].any()
    assert tensor[1].nonzero().tolist() == [[2]]


def test_the_last_valid_token_is_found_where_the_mask_has_holes(tokenizer: WordTokenizer) -> None:
    data = answers(tokenizer, [6], ["a"])
    data.batch["attention_mask"][0, -8] = 0  # the second word: a tool's output, say
    assert LengthPenaltyRewardManager(tokenizer)(data).nonzero().tolist() == [[0, 5]]


def test_all_judge_calls_of_a_batch_go_out_together_whatever_their_group(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(obliging(together=6))
    data = answers(tokenizer, [5] * 6, list("abcdef"), f"[[{script.marker}]]", "judge:10")
    manager = LengthPenaltyRewardManager(tokenizer, **judged, reward_coefficient=0.5)
    assert last_tokens(manager(data), [5] * 6) == pytest.approx([1.5] * 6)
    assert script.requests == 6


def test_no_more_than_the_limit_are_ever_asked_at_once(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(obliging(together=3))
    data = answers(tokenizer, [5] * 9, list("abcdefghi"), f"[[{script.marker}]]", "judge:1")
    LengthPenaltyRewardManager(tokenizer, **judged, max_concurrent_requests=3)(data)
    assert (script.requests, script.peak_in_flight) == (9, 3)


def test_the_sync_mode_asks_one_by_one_and_comes_to_the_same(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(obliging())
    data = answers(tokenizer, [5] * 3, list("aaa"), f"[[{script.marker}]]", "judge:10")
    assert last_tokens(LengthPenaltyRewardManager(tokenizer, **judged, use_async_io=False)(data), [5] * 3) == [2.0] * 3
    assert script.peak_in_flight == 1


@pytest.mark.parametrize(
    ("fields", "truths", "lengths"),
    [
        ({}, ["5", "5"], [4, 4]),
        ({"reward_coefficient": 0.0}, ["4", "4"], [4, 4]),
        ({"enable_openai_reward": False}, ["4", "4"], [4, 4]),
        ({}, ["", ""], [0, 0]),
    ],
)
def test_nothing_is_judged_in_vain(
    tokenizer: WordTokenizer,
    server: HostileServer,
    judged: dict[str, Any],
    fields: dict[str, Any],
    truths: list[str],
    lengths: list[int],
) -> None:
    script = server.script(obliging())
    data = answers(tokenizer, lengths, ["a", "a"], f"[[{script.marker}]]", "judge:10")
    data.non_tensor_batch["reward_model"] = [{"ground_truth": truth} for truth in truths]
    info = LengthPenaltyRewardManager(tokenizer, **{**judged, **fields})(data, return_dict=True)["reward_extra_info"]
    assert info["openai_quality_reward"] == [0.0, 0.0]
    assert script.requests == 0


@pytest.mark.parametrize(("said", "reward"), [("judge:true", 1.0), ("judge:false", 2.0)])
def test_under_a_rubric_that_scores_what_is_worse_high_the_reward_still_rises_with_what_is_wanted(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any], said: str, reward: float
) -> None:
    script = server.script(obliging())
    data = answers(tokenizer, [5], ["a"], f"[[{script.marker}]]", said)
    assert last_tokens(LengthPenaltyRewardManager(tokenizer, **judged, rubric="monitor")(data), [5]) == [reward]


def test_a_failed_judgement_is_never_a_number(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(obliging())
    data = answers(tokenizer, [5, 5], ["a", "a"], f"[[{script.marker}]]", "judge:nothing")
    with pytest.raises(NotJudged, match=r"2 of 2 not judged \(at 0, 1\)"):
        LengthPenaltyRewardManager(tokenizer, **judged)(data)


@pytest.mark.parametrize("return_dict", [False, True])
def test_what_a_reward_model_has_scored_is_returned_as_it_is(tokenizer: WordTokenizer, return_dict: bool) -> None:
    data = answers(tokenizer, [3], ["a"])
    data.batch["rm_scores"] = torch.full((1, 6), 0.25)
    data.non_tensor_batch["acc"] = [0.5]
    data.meta_info["reward_extra_keys"] = ["acc"]
    found = LengthPenaltyRewardManager(tokenizer)(data, return_dict=return_dict)
    tensor = found["reward_tensor"] if return_dict else found
    assert tensor is data.batch["rm_scores"]
    if return_dict:
        assert found["reward_extra_info"] == {"acc": [0.5]}


def test_the_task_score_is_the_trainers_own_function_where_there_is_one(tokenizer: WordTokenizer) -> None:
    seen: list[dict[str, Any]] = []

    def score(**row: Any) -> dict[str, float]:
        seen.append(row)
        return {"score": 0.25, "acc": 1.0}

    data = answers(tokenizer, [3], ["a"])
    assert last_tokens(LengthPenaltyRewardManager(tokenizer, compute_score=score)(data), [3]) == [0.25]
    assert seen[0]["data_source"] == "maths"
    assert seen[0]["ground_truth"] == "4"
    assert seen[0]["solution_str"].endswith("<answer>4</answer>")


def test_our_own_function_asks_its_monitor_about_the_batch_at_once(
    tokenizer: WordTokenizer, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"TRAIN_WITH_MONITOR": "1", "OPENAI_API_KEY": "key", "OPENAI_BASE_URL": server.base_url}
    for name, value in {**names, "MONITOR_MODEL_NAME": "monitor"}.items():
        monkeypatch.setenv(name, value)
    script = server.script(obliging(together=4))
    data = answers(tokenizer, [5] * 4, list("aabb"), f"[[{script.marker}]]", "judge:true")
    assert not LengthPenaltyRewardManager(tokenizer, compute_score=compute_score)(data).any()
    assert script.requests == 4


@pytest.mark.parametrize(("num_examine", "printed"), [(0, 0), (1, 2), (2, 3)])
def test_the_first_of_each_data_source_are_printed(
    tokenizer: WordTokenizer, capsys: pytest.CaptureFixture[str], num_examine: int, printed: int
) -> None:
    data = answers(tokenizer, [3, 3, 3], ["a", "a", "a"])
    data.non_tensor_batch["data_source"] = ["one", "one", "two"]
    LengthPenaltyRewardManager(tokenizer, num_examine)(data)
    assert capsys.readouterr().out.count("[response]") == printed


def test_a_batch_without_groups_is_a_clear_error(tokenizer: WordTokenizer) -> None:
    data = answers(tokenizer, [3], ["a"])
    del data.non_tensor_batch["uid"]
    with pytest.raises(ConfigurationError, match="no 'uid' in non_tensor_batch: the length penalty compares"):
        LengthPenaltyRewardManager(tokenizer)(data)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("uid", None, "uid must be a text or a whole number, not NoneType"),
        ("uid", ["a"], "uid must be a text or a whole number, not list"),
        ("uid", torch.tensor(1), "uid must be a text or a whole number, not Tensor"),
        ("reward_model", "4", "the column reward_model must hold mappings or None, not str"),
        ("extra_info", "{}", "the column extra_info must hold mappings or None, not str"),
    ],
)
def test_a_column_that_cannot_be_read_is_named(tokenizer: WordTokenizer, column: str, value: object, says: str) -> None:
    data = answers(tokenizer, [3], ["a"])
    data.non_tensor_batch[column] = [value]
    with pytest.raises(ConfigurationError, match=says):
        LengthPenaltyRewardManager(tokenizer)(data)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"peak_ration": 0.1}, "did you mean peak_ratio"),
        ({"length_penalty_config": {"max_penlty": 1}}, "did you mean max_penalty"),
        ({"length_penalty_config": LengthPenaltyConfig(), "peak_ratio": 0.1}, "peak_ratio must be given in length_pen"),
        ({"length_penalty_config": "enable"}, "LengthPenaltyConfig must be given as a mapping of its fields, not str"),
        ({"rubric": "qualty"}, "rubric 'qualty' is none of"),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests must be a whole number above 0"),
        ({"deadline": -1}, "deadline must be seconds above 0, not -1.0"),
        ({"enable_openai_reward": True}, "the judge needs api_endpoint, .* set OPENAI_BASE_URL"),
        ({"enable_openai_reward": True, "api_endpoint": "http://a/v1"}, "OPENAI_API_KEY is not set"),
        ({"enable_openai_reward": True, "api_endpoint": "http://a/v1", "api_key": "MY_KEY"}, "MY_KEY is not set"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_batch(
    tokenizer: WordTokenizer, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], says: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match=says):
        LengthPenaltyRewardManager(tokenizer, 0, **arguments)


@pytest.mark.parametrize("path", ["", "/", "/chat/completions"])
def test_a_key_may_be_given_itself_and_the_endpoint_with_its_path(
    tokenizer: WordTokenizer, server: HostileServer, path: str
) -> None:
    script = server.script(obliging())
    data = answers(tokenizer, [5], ["a"], f"[[{script.marker}]]", "judge:10")
    fields = {"enable_openai_reward": True, "api_key": "sk-mine", "api_endpoint": server.base_url + path}
    assert last_tokens(LengthPenaltyRewardManager(tokenizer, **fields)(data), [5]) == [2.0]
    assert script.headers[0]["authorization"] == "Bearer sk-mine"


def test_it_is_pickled_without_its_judge_and_shutting_down_releases_everything(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threads()
    script = server.script(obliging())
    data = answers(tokenizer, [5], ["a"], f"[[{script.marker}]]", "judge:10")
    manager = LengthPenaltyRewardManager(tokenizer, **judged, deadline=99.0)
    manager.shutdown_workers()  # nothing is open yet
    count = len(judges._judges)
    manager(data)
    copy = pickle.loads(pickle.dumps(manager))
    copy(data)
    assert len(judges._judges) == count + 1
    assert script.requests == 1
    copy.shutdown_workers()
    manager.shutdown_workers()
    assert threads() <= before
    assert last_tokens(manager(data), [5]) == [2.0]
    monkeypatch.delenv("OPENAI_API_KEY")  # nothing is read where something is only closed
    manager.shutdown_workers()
    assert threads() <= before


def test_one_manager_that_shuts_down_leaves_another_in_mid_call_alone(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(held)
    data = answers(tokenizer, [5] * 3, list("aaa"), f"[[{script.marker}]]", "judge:10")
    training, validation = (LengthPenaltyRewardManager(tokenizer, **judged, deadline=98.0) for _ in range(2))
    pending, other = training.submit(data), validation.submit(data)
    script.saw(3)
    validation.shutdown_workers()
    script.release()
    assert (pending.result() == other.result()).all()
    training.shutdown_workers()


def test_a_submitted_batch_is_judged_while_the_caller_computes(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(obliging(together=4))
    manager = LengthPenaltyRewardManager(tokenizer, max_concurrent_requests=4, **judged)
    data = answers(tokenizer, [6] * 4, ["a"] * 4, f"[[{script.marker}]]", "judge:10")
    pending = manager.submit(data)
    eventually(lambda: pending._pending.done(), "four verdicts, and nobody has asked for them yet")
    found = pending.result(return_dict=True)
    assert pending.waited == 0.0
    assert found["reward_extra_info"]["openai_quality_reward"] == [1.0] * 4
    assert pending.result() is found["reward_tensor"]
    assert torch.equal(manager(data), found["reward_tensor"])


def test_a_submitted_batch_can_be_given_up(
    tokenizer: WordTokenizer, server: HostileServer, judged: dict[str, Any]
) -> None:
    script = server.script(held)
    manager = LengthPenaltyRewardManager(tokenizer, **judged)
    pending = manager.submit(answers(tokenizer, [6], ["a"], f"[[{script.marker}]]"))
    pending.cancel()
    with pytest.raises(CancelledError):
        pending.result()


def test_what_needs_no_judge_is_pending_and_done(tokenizer: WordTokenizer) -> None:
    data = answers(tokenizer, [3, 3], ["a", "a"])
    pending = LengthPenaltyRewardManager(tokenizer).submit(data)
    assert torch.equal(pending.result(), LengthPenaltyRewardManager(tokenizer)(data))
    assert pending.waited == 0.0
    pending.cancel()

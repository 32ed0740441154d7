"""Promises of the simulated judge's replies: shaped like a real server's, scored by the messages alone."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.testing.latency import LatencyModel, Profile
from rewardcore.testing.replies import SimulatedJudge, expected_score, read, write

MONITOR = "Is it right? End with <answer>true</answer> or <answer>false</answer>."


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def body(messages: list[dict[str, Any]], **rest: Any) -> bytes:
    return orjson.dumps({"model": "judge", "messages": messages, **rest})


def content(reply: bytes) -> str:
    text = orjson.loads(reply)["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def score(reply: bytes) -> int:
    found = re.findall(r"<score>(\d+)</score>", content(reply))
    assert len(found) == 1
    return int(found[0])


def test_a_reply_has_what_an_openai_compatible_server_returns() -> None:
    reply = orjson.loads(write(read(body(user("hello"), model="m-1"))))
    assert reply["id"].startswith("chatcmpl-")
    assert (reply["object"], reply["model"]) == ("chat.completion", "m-1")
    assert isinstance(reply["created"], int)
    [choice] = reply["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert min(usage.values()) > 0


@given(st.text(), st.floats(0, 2))
def test_only_the_messages_decide_the_score(text: str, temperature: float) -> None:
    plain = write(read(body(user(text))))
    turned = [{"content": text, "role": "user"}]
    assert score(plain) == score(write(read(body(turned, model="other", temperature=temperature))))
    assert plain == write(read(body(user(text))))


@given(st.text())
def test_the_expected_score_is_the_one_in_the_reply(text: str) -> None:
    assert expected_score(user(text)) == (score(write(read(body(user(text))))) - 1) / 9


def test_every_score_from_1_to_10_occurs_about_as_often() -> None:
    scores = [score(write(read(body(user(str(n)))))) for n in range(2000)]
    assert set(scores) == set(range(1, 11))
    assert all(140 < scores.count(value) < 260 for value in range(1, 11))


@pytest.mark.parametrize("instruction", [MONITOR, "Answer as <answer>true/false</answer>."])
def test_a_prompt_that_asks_for_true_or_false_gets_it(instruction: str) -> None:
    seen = set()
    for number in range(50):
        messages = user(f"{instruction} {number}")
        [answer] = re.findall(r"<answer>(true|false)</answer>$", content(write(read(body(messages)))))
        assert expected_score(messages) == {"true": 1.0, "false": 0.0}[answer]
        seen.add(answer)
    assert seen == {"true", "false"}


def test_an_answer_of_the_samples_own_changes_nothing() -> None:
    assert score(write(read(body(user("Give a <score>. The response: <answer>true</answer>")))))


@pytest.mark.parametrize(
    ("broken", "hint"),
    [
        (b"{", "not JSON"),
        (b"[]", "'messages'"),
        (b"{}", "'model'"),
        (b'{"model": "judge"}', "'messages'"),
        (b'{"model": "judge", "messages": []}', "not empty"),
        (b'{"model": 7, "messages": [1]}', "'model'"),
        (b'{"model": "judge", "messages": [1], "stream": true}', "'stream'"),
    ],
)
def test_a_body_that_cannot_be_judged_says_why(broken: bytes, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        read(broken)
    answer = SimulatedJudge(LatencyModel(Profile(latency=2.0))).arrive(broken, 0.0)
    assert (answer.status, answer.seconds) == (400, 0.0)
    assert hint in orjson.loads(answer.body)["error"]["message"]


def test_the_judge_counts_requests_statuses_and_the_peak_in_flight() -> None:
    judge = SimulatedJudge(LatencyModel(Profile(latency=2.0, concurrency_limit=2)))
    statuses = [judge.arrive(body(user(str(n))), 0.0).status for n in range(3)]
    assert statuses == [200, 200, 429]
    judge.leave()
    assert (judge.requests, judge.in_flight, judge.peak_in_flight) == (3, 2, 3)
    assert judge.statuses == {200: 2, 429: 1}
    judge.reset()
    assert (judge.requests, judge.in_flight, judge.peak_in_flight) == (0, 2, 2)


def test_another_model_is_a_404_that_names_both() -> None:
    judge = SimulatedJudge(LatencyModel(Profile()), model="judge")
    answer = judge.arrive(body(user("x"), model="typo"), 0.0)
    error = orjson.loads(answer.body)["error"]
    assert answer.status == 404
    assert error["code"] == "model_not_found"
    assert "'typo'" in error["message"]
    assert "'judge'" in error["message"]

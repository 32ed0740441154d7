"""Promises of a script: a request gets what was told for it, step by step, whatever else is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from rewardcore import ConfigurationError, Endpoint, Sample, Verdict, open_judge, rubrics
from rewardcore.testing import Profile, SimulatedServer
from rewardcore.testing.latency import LatencyModel
from rewardcore.testing.replies import Answer, SimulatedJudge
from rewardcore.testing.script import Script, Step, When


def body(text: str | list[dict[str, Any]]) -> bytes:
    return orjson.dumps({"model": "judge", "messages": [{"role": "user", "content": text}]})


class Stage:
    """A judge without its socket, and what it is told."""

    def __init__(self, profile: Profile | None = None) -> None:
        self.judge = SimulatedJudge(LatencyModel(profile or Profile()))

    def when(self, text: str) -> When:
        return When(text, self.judge.script.tell)

    def ask(self, text: str | list[dict[str, Any]], now: float = 0.0) -> Answer:
        answer = self.judge.arrive(body(text), now)
        self.judge.leave()
        return answer

    def said(self, text: str | list[dict[str, Any]]) -> str:
        content = orjson.loads(self.ask(text).body)["choices"][0]["message"]["content"]
        assert isinstance(content, str)
        return content


def test_steps_are_taken_in_turn_and_then_the_judge_answers_as_ever() -> None:
    stage = Stage()
    ordinary = stage.ask("It is 41.")
    stage.when("41").fails(429, retry_after=0.5, times=2).scores(7, times=1)
    first, second, third, fourth = (stage.ask("It is 41.") for _ in range(4))
    assert (first.status, second.status, third.status) == (429, 429, 200)
    assert dict(first.headers) == {"retry-after": "0.5"}
    assert b"<score>7</score>" in third.body
    assert fourth == ordinary


def test_each_request_goes_through_its_steps_on_its_own() -> None:
    stage = Stage()
    stage.when("It is").fails(503, times=1)
    assert [stage.ask(text).status for text in ("It is a", "It is b", "It is b", "It is a")] == [503, 503, 200, 200]


def test_without_times_a_step_is_for_good() -> None:
    stage = Stage()
    stage.when("x").says("No idea.")
    assert {stage.said("x") for _ in range(5)} == {"No idea."}


def test_a_text_told_later_goes_before_and_the_same_text_again_replaces_it() -> None:
    stage = Stage()
    stage.when("").scores(5)
    stage.when("It is 42.").scores(10)
    assert (stage.said("It is 42."), stage.said("Other")) == ("<score>10</score>", "<score>5</score>")
    stage.when("").scores(1)
    assert stage.said("It is 42.") == "<score>1</score>"


@pytest.mark.parametrize("text", ['He said "no".', "two\nlines", "6 × 7 \U0001f600", "C:\\temp"])
def test_a_text_is_found_as_it_was_written_whatever_json_makes_of_it(text: str) -> None:
    stage = Stage()
    stage.when(text).scores(7)
    assert stage.said(f"Response: {text} End.") == "<score>7</score>"
    assert stage.said([{"type": "text", "text": text}]) == "<score>7</score>"
    assert stage.said([{"type": "image_url", "image_url": {"url": text}}]) != "<score>7</score>"


def test_what_the_profile_refuses_is_refused_and_costs_no_step() -> None:
    stage = Stage(Profile(rate_limit=1.0))
    stage.when("x").scores(7, times=1)
    assert stage.ask("y", now=0.0).status == 200  # the one that a second allows
    assert stage.ask("x", now=0.0).status == 429
    assert b"<score>7</score>" in stage.ask("x", now=5.0).body


def test_a_step_takes_as_long_as_it_says_or_as_the_profile_does() -> None:
    stage = Stage(Profile(latency=2.0))
    stage.when("x").scores(7, times=1).scores(7, seconds=9.0, times=1).fails(500, times=1).fails(500, seconds=3.0)
    assert [stage.ask("x").seconds for _ in range(4)] == [2.0, 9.0, 0.0, 3.0]


def test_a_reset_forgets_the_script_and_where_it_was() -> None:
    stage = Stage()
    stage.when("x").fails(500)
    stage.ask("x")
    stage.judge.reset()
    assert stage.ask("x").status == 200
    stage.when("x").fails(500, times=1)
    assert stage.ask("x").status == 500


WRONG: dict[str, tuple[Callable[[When], object], str]] = {
    "a status that is no error": (lambda when: when.fails(200), "such as 429 or 503, not 200"),
    "a status that does not exist": (lambda when: when.fails(499), "not 499"),
    "no times": (lambda when: when.scores(7, times=0), "times must be a whole number above 0, not 0"),
    "a fraction of times": (lambda when: when.scores(7, times=1.5), "not 1.5"),  # type: ignore[arg-type]
    "a step that is never reached": (lambda when: when.scores(7).scores(8), "is for good; give it times="),
    "time that runs backwards": (lambda when: when.scores(7, seconds=-1), "seconds must be a finite number"),
    "no time": (lambda when: when.fails(429, retry_after=float("nan")), "retry_after must be a finite number"),
}


@pytest.mark.parametrize(("tell", "says"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_meant_is_refused_in_words(tell: Callable[[When], object], says: str) -> None:
    script = Script()
    with pytest.raises(ConfigurationError, match=says):
        tell(When("x", script.tell))


def test_a_text_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(ConfigurationError, match="takes a text that the judge is shown, not int"):
        When(7, Script().tell)  # type: ignore[arg-type]


# Over a socket, read by the library.


def judged(server: SimulatedServer, *responses: str, rubric: Any = rubrics.QUALITY) -> list[Verdict]:
    with open_judge("asyncio", server.endpoint, rubric=rubric, cache=None, deadline=60.0) as judge:
        return judge.judge([Sample("What is 6 × 7?", response) for response in responses])


def test_every_status_of_a_verdict_can_be_told(judge_server: SimulatedServer) -> None:
    judge_server.when("right").scores(10)
    judge_server.when("broken").fails(400)
    judge_server.when("improper").refuses()
    judge_server.when("lengthy").truncates()
    judge_server.when("odd").says("I like it.")
    verdicts = judged(judge_server, "right", "broken", "improper", "lengthy", "odd")
    assert [verdict.status for verdict in verdicts] == ["ok", "failed", "refused", "truncated", "unparsed"]
    assert [verdict.score for verdict in verdicts] == [1.0, None, None, None, None]


def test_a_judge_that_answers_true_or_false(judge_server: SimulatedServer) -> None:
    judge_server.when("games").answers(True)
    judge_server.when("honest").answers(False)
    assert [verdict.score for verdict in judged(judge_server, "games", "honest", rubric=rubrics.MONITOR)] == [1.0, 0.0]


def test_a_429_that_goes_away_is_asked_again_and_counted(judge_server: SimulatedServer) -> None:
    judge_server.when("It is 41.").fails(429, retry_after=0.01, times=2).scores(7)
    (verdict,) = judged(judge_server, "It is 41.")
    assert (verdict.status, verdict.attempts) == ("ok", 3)
    assert judge_server.stats().statuses == {"429": 2, "200": 1}


def test_a_quota_that_is_used_up_ends_the_run(judge_server: SimulatedServer) -> None:
    judge_server.when("").fails(429, code="insufficient_quota")
    (verdict,) = judged(judge_server, "It is 41.")
    assert verdict.status == "failed"
    assert "QuotaExhausted" in str(verdict.error)
    assert judge_server.stats().requests == 1


def test_the_endpoint_asks_for_no_key(judge_server: SimulatedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-real-key")
    assert judge_server.endpoint == Endpoint(judge_server.base_url, "judge", api_key_env=None)
    assert "Authorization" not in judge_server.endpoint.request_headers()


def test_steps_survive_the_way_to_the_server() -> None:
    step = Step(429, code="slow_down", retry_after=0.5, times=2, seconds=1.0)
    assert Step(*orjson.loads(orjson.dumps(list(step)))) == step

"""`judge.check()`: a line for each thing that must be right, within seconds, whatever the endpoint does."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys

import httpx
import pytest
import respx

import rewardcore as rc
from rewardcore.testing import SimulatedServer
from tests.modes.conftest import MODES, Opener
from tests.modes.custom_rubrics import SeesTheTruth
from tests.modes.hostile_server import HostileServer, completion
from tests.modes.test_hostile import free_port

URL = "http://judge.test/v1"
KEY = "sk-0123456789abcdef"
MODELS = httpx.Response(200, json={"object": "list", "data": [{"id": "judge"}, {"id": "other"}]})
FINE = httpx.Response(200, content=completion("Fine. <score>7</score>"))


def found(models: object = MODELS, answer: object = FINE, **options: object) -> rc.http.check.Check:
    """What a check finds of an endpoint that answers so."""
    with respx.mock:
        for route, given in ((respx.get(f"{URL}/models"), models), (respx.post(f"{URL}/chat/completions"), answer)):
            route.mock(side_effect=given) if isinstance(given, Exception) else route.mock(return_value=given)
        with rc.open_judge("sync", rc.Endpoint(URL, "judge"), cache=None, **options) as judge:
            return judge.check(seconds=60.0)


def test_an_endpoint_that_can_judge_is_told_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    quota = {"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499"}
    check = found(answer=httpx.Response(200, content=FINE.content, headers=quota))
    assert check.ok
    lines = str(check).splitlines()
    assert [re.sub(r"\d+ ms|[\d.]+ s\b", "T", line) for line in lines] == [
        "reachable  ok  judge.test:80 answered after T",
        "key        ok  accepted",
        "model      ok  'judge' is served",
        "sample     ok  score 0.67 in T, 5 tokens",
        "quota      -   499 of 500 requests left",
    ]


@pytest.mark.parametrize(
    ("models", "answer", "what", "says"),
    [
        (httpx.ConnectError("refused"), FINE, "reachable", "no connection to judge.test:80"),
        (MODELS, httpx.Response(401, text=f"bad key {KEY}"), "key", "check the key in OPENAI_API_KEY"),
        (MODELS, httpx.Response(404, text="no such model"), "sample", "WrongPath: judge.test:80 answered 404"),
        (MODELS, httpx.Response(200, content=completion("no score")), "sample", "Unparsed: no <score>"),
        (MODELS, httpx.Response(429, text="later"), "sample", "RateLimited: "),
        (MODELS, httpx.ReadError("reset"), "sample", "ConnectionFailed: "),
        (httpx.Response(404), httpx.Response(200, text="<html>"), "sample", "is base_url right?"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_what_to_do(
    models: object, answer: object, what: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    check = found(models, answer)
    assert not check.ok
    assert next(finding.what for finding in check.findings if finding.ok is False) == what
    assert says in str(check)
    assert KEY not in str(check)


@pytest.mark.parametrize("models", [httpx.Response(404), httpx.Response(200, text="{}"), httpx.Response(500)])
def test_an_endpoint_need_not_list_its_models(models: httpx.Response) -> None:
    check = found(models)
    assert check.ok
    assert "'judge' is not listed; no model is" in str(check)


def test_a_model_that_is_not_listed_is_told_with_those_that_are() -> None:
    listed = httpx.Response(200, json={"data": [{"id": f"model-{number}"} for number in range(20)]})
    check = found(listed)
    assert check.ok
    assert "listed are model-0, model-1" in str(check)
    assert "model-12" not in str(check)


def test_a_rubric_of_the_callers_own_is_asked() -> None:
    assert "score 0.00" in str(found(rubric=SeesTheTruth()))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_can_be_checked_even_inside_a_running_loop(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    endpoint = rc.Endpoint(f"http://127.0.0.1:{free_port()}/v1", "judge")

    async def main() -> str:
        with open_judge(mode, endpoint) as judge:
            return str(judge.check(seconds=60.0))

    assert asyncio.run(main()).startswith("reachable  NO  no connection to 127.0.0.1:")


def test_an_endpoint_that_is_silent_is_told_after_the_seconds_that_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = rc.Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", "judge")
        with rc.open_judge("sync", endpoint, cache=None) as judge:
            check = judge.check(seconds=0.2)
    assert "gave no whole answer within 0.2 s" in str(check)
    assert not check.ok


def test_a_judge_without_an_endpoint_says_so() -> None:
    class Texts:
        def generate(self, conversations: list[object]) -> list[str]:
            return [""] * len(conversations)

    with rc.open_judge("self", Texts()) as judge, pytest.raises(rc.ConfigurationError, match="no endpoint"):
        judge.check()


def command(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "rewardcore", "check", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_command_exits_with_1_where_it_cannot_judge() -> None:
    code, out, errors = command(f"http://127.0.0.1:{free_port()}/v1", "--model", "judge")
    assert (code, errors) == (1, "")
    assert out.startswith("reachable  NO  no connection to 127.0.0.1:")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["http://127.0.0.1:8000", "--model", "judge"], "base_url"),
        (["http://127.0.0.1:8000/v1"], "--model"),
        (["http://127.0.0.1:8000/v1", "--model", "judge", "--rubric", "nice"], "rubric 'nice' is none of quality, "),
        (["http://127.0.0.1:8000/v1", "--model", "judge", "--rubric", "nice.toml"], "rubric file nice.toml"),
        (["http://127.0.0.1:8000/v1", "--model", "judge", "--seconds", "0"], "--seconds"),
    ],
)
def test_the_command_answers_a_mistake_in_one_line(arguments: list[str], says: str) -> None:
    code, out, errors = command(*arguments)
    assert (code, out) == (2, "")
    assert says in errors
    assert errors.count("\n") == 1


def test_the_command_finds_the_simulated_judge_fit(judge_server: SimulatedServer) -> None:
    code, out, errors = command(judge_server.base_url, "--model", "simulated-judge")
    assert (code, errors) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == ["ok", "ok", "-", "ok", "-"]


@pytest.mark.parametrize("seconds", [0, -1, "5", None, float("nan"), float("inf")])
def test_seconds_that_are_none_are_named(judge_server: SimulatedServer, seconds: object) -> None:
    with (
        rc.open_judge("sync", judge_server.endpoint, cache=None) as judge,
        pytest.raises(rc.ConfigurationError, match="seconds must be above 0, not"),
    ):
        judge.check(seconds)  # type: ignore[arg-type]


def test_a_check_leaves_no_filter_on_the_clients_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    before = list(logging.getLogger("httpx").filters)
    assert found().ok
    assert logging.getLogger("httpx").filters == before

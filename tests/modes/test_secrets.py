"""No key in any verdict, log line, repr, exception or traceback, in any mode, even if the endpoint repeats it."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Iterator

import httpcore
import pytest

import rewardcore as rc
from rewardcore import retry
from tests.modes.conftest import Opener
from tests.modes.hostile_server import HostileServer, answers, echoes, ok

KEY = "sk-live-0123456789abcdefghijklmnopqrstuvwxyz"
TEAM = "team-secret-9876543210"

REPEATED = {
    "400": echoes(400, "your key was "),
    "401": echoes(401),
    "404": echoes(404, "x" * 250),
    "500": echoes(500, '{"error": "', '"}', Retry_After="86400"),
    "429": echoes(429, "slow down, ", Retry_After="86400"),
    "truncated JSON": echoes(200, '{"choices": "'),
    "HTML": echoes(200, "<html>"),
    "JSON cut where excerpts are cut": echoes(200, '{"choices": "' + "x" * 170),
    "after a lot of space": echoes(400, " " * 1970),
    "200 with an error": echoes(200, '{"error": {"message": "bad key ', '"}}'),
    "a refusal": echoes(200, '{"choices": [{"index": 0, "message": {"refusal": "', '"}}]}'),
}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    monkeypatch.setattr(retry, "BASE_DELAY", 0.01)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that anybody logs, at the finest level."""
    stream, root, levels = io.StringIO(), logging.getLogger(), {}
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(args)s"))
    for name in ("", "rewardcore", "httpx", "httpcore", "aiohttp", "asyncio"):
        levels[name] = logging.getLogger(name).level
        logging.getLogger(name).setLevel(logging.DEBUG)
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def assert_hidden(*texts: object) -> None:
    for text in map(str, texts):
        assert TEAM not in text
        for start in range(0, len(KEY) - 8):  # nor any part of it worth having
            assert KEY[start : start + 8] not in text, text


def keyed_endpoint(server: HostileServer) -> rc.Endpoint:
    return rc.Endpoint(server.base_url, "judge", api_key_env="JUDGE_KEY", headers={"X-Team": TEAM})


def test_an_endpoint_that_repeats_the_key_gets_it_nowhere(
    mode: str, open_judge: Opener, server: HostileServer, log: io.StringIO
) -> None:
    endpoint = keyed_endpoint(server)
    scripts = [server.script(behaviour) for behaviour in REPEATED.values()]
    with open_judge(mode, endpoint, deadline=4.0) as judge:
        verdicts = [judge.judge([script.sample()])[0] for script in scripts]
        shown = [repr(judge), repr(endpoint), repr(judge.stats), repr(judge._crew)]
    assert "ok" not in {verdict.status for verdict in verdicts}
    assert all(script.headers[0]["authorization"] == f"Bearer {KEY}" for script in scripts)
    assert all(script.headers[0]["x-team"] == TEAM for script in scripts)
    assert "the rest of this run is not sent" in log.getvalue() or mode == "asyncio-child-process"
    assert_hidden(*map(repr, verdicts), *shown, log.getvalue())


def test_an_exception_shows_no_key_even_with_its_locals(mode: str, open_judge: Opener, server: HostileServer) -> None:
    endpoint, script = keyed_endpoint(server), server.script(ok)
    judge = open_judge(mode, endpoint)
    shown = []
    for misuse in (lambda: judge.judge("text"), judge.close, lambda: judge.judge(script.samples(1))):
        try:
            misuse()
        except rc.RewardcoreError as error:
            shown.append("".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()))
    assert len(shown) == 2
    assert_hidden(*shown)


def test_a_request_that_is_interrupted_shows_no_key_even_with_its_locals(
    open_judge: Opener, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the sync mode the client's own frames are on the caller's stack."""

    def interrupted(*_: object, **__: object) -> bytes:
        raise KeyboardInterrupt

    with open_judge("sync", keyed_endpoint(server)) as judge:
        script = server.script(ok)
        judge.judge(script.samples(1))
        for name in ("read", "write"):
            with monkeypatch.context() as patch:
                patch.setattr(httpcore._backends.sync.SyncStream, name, interrupted)
                with pytest.raises(KeyboardInterrupt) as caught:
                    judge.judge([script.sample(name)])
            report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
            assert_hidden("".join(report.format()))


def test_a_key_on_the_stack_prints_as_stars(server: HostileServer) -> None:
    headers = keyed_endpoint(server).request_headers()
    assert_hidden(headers, repr(keyed_endpoint(server).api_key()))


def test_the_log_is_quiet_by_default(
    open_judge: Opener, server: HostileServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_judge("asyncio-aiohttp", keyed_endpoint(server)) as judge:
        judge.judge([server.script(answers(401)).sample()])
    assert capfd.readouterr() == ("", "")

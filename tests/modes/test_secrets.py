"""No key in any verdict, log line, repr, exception or traceback, in any mode, even if the endpoint repeats it."""

from __future__ import annotations

import io
import logging
import signal
import threading
import traceback
from collections.abc import Iterator

import pytest

import rewardcore as rc
from rewardcore.http import retry
from tests.modes.conftest import Opener
from tests.modes.deadlines import hurried
from tests.modes.hostile_server import HostileServer, answers, completion, echoes, ok, parrots, silent

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

_FINE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_REST = b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(completion()), completion())

#: Raw answers that are HTTP all the same, and have a score.
HEARD = {
    "a reason phrase": b"HTTP/1.1 200 {key}\r\n" + _REST,
    "a header's value": _FINE + b"X-Echo: {key}\r\n" + _REST,
    "a header's name": _FINE + b"{key}: 1\r\n" + _REST,
}

#: Raw answers that no client can find a score in, however lenient: the body is never a whole completion.
BROKEN = {
    "no status line": b"{key}\r\n\r\n",
    "a version that is none": b"HTTP/{key} 200 OK\r\n\r\n",
    "a status that is none": b"HTTP/1.1 {key} OK\r\n\r\n",
    "the reason phrase of a 400": b"HTTP/1.1 400 {key}\r\nContent-Length: 2\r\n\r\nno",
    "a redirect's location": b"HTTP/1.1 302 Found\r\nLocation: {key}\r\nContent-Length: 0\r\n\r\n",
    "a header line without a colon": _FINE + b"{key}\r\nContent-Length: 9\r\n\r\nshort",
    "a header's name with a space": _FINE + b"X Echo {key}: 1\r\nContent-Length: 9\r\n\r\nshort",
    "a header's value with a NUL": _FINE + b"X-Echo: {key}\0\r\nContent-Length: 9\r\n\r\nshort",
    "Content-Length": _FINE + b"Content-Length: {key}\r\n\r\nshort",
    "Content-Encoding": _FINE + b"Content-Encoding: {key}\r\nContent-Length: 5\r\n\r\nshort",
    "Transfer-Encoding": _FINE + b"Transfer-Encoding: {key}\r\n\r\nshort",
    "the size of a chunk": _FINE + b"Transfer-Encoding: chunked\r\n\r\n{key}\r\nshort\r\n0\r\n\r\n",
    "where a chunk should end": _FINE + b"Transfer-Encoding: chunked\r\n\r\n5\r\nshort{key}\r\n0\r\n\r\n",
}
CUTS: dict[str, dict[str, bool]] = {
    "whole": {},
    "in two segments": {"in_two": True},
    "half of it": {"ends_early": True},
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
        for secret in (KEY, TEAM):
            for start in range(len(secret) - 7):  # nor any part of it worth having
                assert secret[start : start + 8] not in text, text


def keyed_endpoint(server: HostileServer) -> rc.Endpoint:
    return rc.Endpoint(server.base_url, "judge", api_key_env="JUDGE_KEY", headers={"X-Team": TEAM})


def test_an_endpoint_that_repeats_the_key_gets_it_nowhere(
    mode: str, open_judge: Opener, server: HostileServer, log: io.StringIO
) -> None:
    endpoint = keyed_endpoint(server)
    scripts = [server.script(behaviour) for behaviour in REPEATED.values()]
    with open_judge(mode, endpoint) as judge:
        judge.judge(server.script(ok).samples(1))
        with hurried(judge, 4.0):
            verdicts = [judge.judge([script.sample(), *server.script(ok).samples(5)])[0] for script in scripts]
        shown = [repr(judge), repr(endpoint), repr(judge.stats), repr(judge._driver)]
    assert "ok" not in {verdict.status for verdict in verdicts}
    assert all(script.headers[0]["authorization"] == f"Bearer {KEY}" for script in scripts)
    assert all(script.headers[0]["x-team"] == TEAM for script in scripts)
    assert "the rest of this run is not sent" in log.getvalue() or mode == "asyncio-child-process"
    assert_hidden(*map(repr, verdicts), *shown, log.getvalue())


def test_a_key_in_the_bytes_around_the_body_gets_nowhere(
    mode: str, open_judge: Opener, server: HostileServer, log: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where HTTP itself breaks, an error is tempted to quote the line, or as much of it as has come."""
    scripts = {
        f"{name}, {how}": server.script(parrots(answer, **cut))
        for how, cut in CUTS.items()
        for name, answer in (HEARD | BROKEN).items()
    }
    with open_judge(mode, keyed_endpoint(server), deadline=60.0, max_retries=0) as judge:
        judge.judge(server.script(ok).samples(1))  # a redirect from an endpoint that never replied would end the run
        fine = (server.script(ok).sample() for _ in scripts)  # the endpoint is not down
        found = judge.judge([sample for script in scripts.values() for sample in (script.sample(), next(fine))])[::2]
        shown = [repr(judge), repr(judge.stats)]
    verdicts = dict(zip(scripts, found, strict=True))
    assert all(script.headers[0]["authorization"] == f"Bearer {KEY}" for script in scripts.values())
    heard = {f"{name}, {how}" for name in HEARD for how in CUTS if how != "half of it"}
    assert {name for name, verdict in verdicts.items() if verdict.status == "ok"} == heard
    assert_hidden(*(f"{name}: {verdict!r}" for name, verdict in verdicts.items()))
    assert_hidden(*shown, log.getvalue(), *capfd.readouterr())


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
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    """Ctrl-C while the caller waits for a request on the wire."""
    script = server.script(silent)

    def interrupt() -> None:
        script.saw(1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with open_judge(mode, keyed_endpoint(server)) as judge:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt) as caught:
            judge.judge(script.samples(1))
        thread.join()
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

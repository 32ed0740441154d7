"""Hostile endpoints: a behaviour, the status it must end in, and how many requests it may cost, in every mode."""

from __future__ import annotations

import email.utils
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import rewardcore as rc
from rewardcore.http import retry
from tests.modes import leftovers
from tests.modes.conftest import MODES, Opener
from tests.modes.deadlines import timed_out
from tests.modes.hostile_server import (
    Behaviour,
    HostileServer,
    after_others,
    answers,
    broken_gzip,
    completion,
    endless_headers,
    endless_interim,
    flood_of_headers,
    gzip_bomb,
    gzipped,
    http,
    huge_body,
    huge_chunked_body,
    ok,
    raw,
    says,
    silent,
    together,
    trickling_body,
    trickling_headers,
)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come soon; not in a child process, whose engine is out of reach."""
    monkeypatch.setattr(retry, "BASE_DELAY", 0.01)


@dataclass(frozen=True)
class Row:
    name: str
    steps: tuple[Behaviour, ...]
    status: str
    requests: int
    says: str = ""


def once(name: str, behaviour: Behaviour, says: str, status: str = "failed") -> Row:
    """Final at once."""
    return Row(name, (behaviour,), status, 1, says)


def again(name: str, behaviour: Behaviour) -> Row:
    """Tried again, and then fine."""
    return Row(name, (behaviour, ok), "ok", 2)


QUOTA = json.dumps({"error": {"code": "insufficient_quota", "message": "pay first"}})
DOCUMENT = completion()
NESTED = b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
TWICE = DOCUMENT[:-1] + b', "choices": []}'
TWO_CHOICES = json.dumps({"choices": json.loads(DOCUMENT)["choices"] * 2})
NOW, LATER = email.utils.formatdate(usegmt=True), email.utils.formatdate(time.time() + 86400, usegmt=True)

TABLE = [
    Row("a plain completion", (ok,), "ok", 1),
    Row("gzip though identity was asked for", (gzipped,), "ok", 1),
    # Try again.
    again("429", answers(429)),
    again("429, Retry-After in seconds", answers(429, Retry_After="0")),
    again("429, Retry-After in milliseconds", answers(429, retry_after_ms="20")),
    again("429, Retry-After as a date", answers(429, Retry_After=NOW)),
    again("429, Retry-After below zero", answers(429, Retry_After="-5")),
    again("429, Retry-After NaN", answers(429, Retry_After="NaN")),
    again("429, Retry-After 1e999", answers(429, Retry_After="1e999")),
    again("429, Retry-After in words", answers(429, Retry_After="soon, I hope")),
    *(again(str(status), answers(status)) for status in (408, 409, 425, 500, 502, 503, 504, 529)),
    again("truncated JSON", answers(200, DOCUMENT[:-30])),
    again("an empty body", answers(200, b"")),
    again("Content-Length too long", raw(http(200, DOCUMENT, Content_Length=str(len(DOCUMENT) + 9)), close=True)),
    again("Content-Length too short", raw(http(200, DOCUMENT, Content_Length="20"), close=True)),
    again("reset in mid-body", raw(http(200, DOCUMENT)[:-20], reset=True)),
    again("reset before the answer", raw(b"", reset=True)),
    again("closed before the answer", raw(b"", close=True)),
    again("closed in mid-header", raw(b"HTTP/1.1 200 OK\r\nContent-Le", close=True)),
    again("no HTTP at all", raw(b"220 smtp.example ESMTP\r\n", close=True)),
    again("broken gzip", broken_gzip),
    again("invalid UTF-8", answers(200, DOCUMENT.replace(b"Fine", b"\xff\xfe"))),
    again("NaN in JSON", answers(200, DOCUMENT.replace(b"10", b"NaN"))),
    again("deep nesting", answers(200, NESTED)),
    again("a key twice", answers(200, TWICE)),
    # Final.
    once("429, Retry-After a day", answers(429, Retry_After="86400"), "86400 s, which is past the deadline"),
    once("429, a day in milliseconds", answers(429, retry_after_ms="86400000"), "86400 s, which is past"),
    once("429, Retry-After tomorrow's date", answers(429, Retry_After=LATER), "past the deadline"),
    once("503, Retry-After a day", answers(503, Retry_After="86400"), "past the deadline"),
    once("429 insufficient_quota", answers(429, QUOTA), "QuotaExhausted"),
    *(once(str(status), answers(status, "why not"), f"{status}") for status in (400, 401, 403, 404, 405, 422)),
    once("HTML", answers(200, "<!doctype html><p>Log in"), "HTML"),
    once("200 with an error", answers(200, '{"error": {"message": "model overloaded"}}'), "model overloaded"),
    once("no choices", answers(200, "{}"), "no choices"),
    once("choices: []", answers(200, '{"choices": []}'), "0 choices"),
    once("two choices", answers(200, TWO_CHOICES), "2 choices"),
    once("choices of null", answers(200, '{"choices": [null]}'), "index 0"),
    once("no message", answers(200, '{"choices": [{"index": 0}]}'), "no message"),
    once("content: null", says(None), "null"),
    once("content as a list", says([{"type": "text"}]), "list"),
    once("a JSON list", answers(200, "[]"), "list"),
    once("an unknown encoding", answers(200, b"xyz", Content_Encoding="br"), "'br'"),
    once("a gzip bomb", gzip_bomb, "larger than 8 MiB"),
    once("a body of 1 GiB", huge_body, "larger than 8 MiB"),
    once("a chunked body without end", huge_chunked_body, "larger than 8 MiB"),
    # What the judge said.
    once("finish_reason: length", says("<score>7</score>", "length"), "cut at 5 tokens", "truncated"),
    once("a refusal", says(None, refusal="I cannot"), "I cannot", "refused"),
    once("content_filter", says("", "content_filter"), "refused", "refused"),
    once("an empty text", says(""), "empty", "unparsed"),
    once("reasoning only", says(None, reasoning_content="hm"), "reasoning only", "unparsed"),
    once("no tag", says("7 out of 10"), "no <score>", "unparsed"),
    once("out of range", says("<score>11/10</score>"), "outside the scale", "unparsed"),
    once("a tag in a thinking block", says("<think><score>9</score></think> hm"), "no <score>", "unparsed"),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_conformance(row: Row, shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(*row.steps)
    verdict, neighbour = shared_judge.judge([script.sample(), server.script(ok).sample()])
    assert (verdict.status, script.requests) == (row.status, row.requests), verdict
    assert row.says in (verdict.error or "")
    assert (verdict.score is None) == (row.status != "ok")
    assert verdict.attempts == row.requests
    if not row.name.startswith(("401", "403", "429 insufficient")):  # those end the run for everybody
        assert neighbour.status == "ok"


@pytest.mark.parametrize("mode", ["sync", "process", "asyncio-aiohttp", "asyncio-httpx"])
@pytest.mark.parametrize("behaviour", [answers(500, "on fire"), answers(200, "{")], ids=["500", "truncated JSON"])
def test_what_never_gets_better_for_one_sample_alone_fails_typed_after_a_few_attempts(
    mode: str, behaviour: Behaviour, shared_judge: rc.Judge, server: HostileServer
) -> None:
    """It is told from an outage by others that get through in between, so some do."""
    fine = server.script(ok)
    script = server.script(behaviour if mode == "sync" else after_others(behaviour, fine, 20))
    verdict, *others = shared_judge.judge([script.sample(), *fine.samples(20)])
    assert {other.status for other in others} == {"ok"}
    assert (verdict.status, verdict.attempts) == ("failed", script.requests)
    assert retry.MAX_RETRIES < script.requests <= retry.MAX_RETRIES + 3
    assert str(verdict.error).startswith(("Transient: ", "BrokenReply: "))


def test_a_close_on_keep_alive_reuse_is_retried_free_of_charge(shared_judge: rc.Judge, server: HostileServer) -> None:
    """The first retry waits for nothing and takes nothing from the budget; the count of failures does not grow."""
    reused = server.script(ok, raw(b"", close=True), *[answers(500)] * retry.MAX_RETRIES, ok)
    if "Remote" in type(shared_judge._driver).__name__:
        reused = server.script(ok, raw(b"", close=True), ok)
    assert [verdict.status for verdict in shared_judge.judge([reused.sample("first")])] == ["ok"]
    assert [verdict.status for verdict in shared_judge.judge([reused.sample("second")])] == ["ok"]


def test_bytes_after_the_body_cost_one_connection_and_no_verdict(shared_judge: rc.Judge, server: HostileServer) -> None:
    script, fine = server.script(raw(http(200, DOCUMENT, Content_Length="20")), ok), server.script(ok)
    assert {verdict.status for verdict in shared_judge.judge([script.sample(), *fine.samples(5)])} == {"ok"}
    assert script.requests <= 3  # the second may meet what the first left on its connection


@pytest.mark.parametrize(
    ("mode", "status"), [*((mode, 401) for mode in MODES), ("asyncio-aiohttp", 403), ("asyncio-aiohttp", 429)]
)
def test_a_denied_request_ends_the_run_and_not_the_next_one(
    mode: str, status: int, open_judge: Opener, server: HostileServer
) -> None:
    denied, fine = server.script(answers(status, QUOTA if status == 429 else "no")), server.script(ok)
    options = {"workers": 1} if mode == "process" else {}
    with open_judge(mode, max_concurrent=1, **options) as judge:
        verdicts = judge.judge([denied.sample(), *fine.samples(20)])
        assert [verdict.status for verdict in verdicts] == ["failed"] * 21
        assert len({verdict.error for verdict in verdicts}) == 1
        assert (denied.requests, fine.requests) == (1, 0)
        assert [verdict.status for verdict in judge.judge(fine.samples(2))] == ["ok", "ok"]


def test_a_missing_key_that_the_endpoint_wants_is_named(
    mode: str, open_judge: Opener, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    endpoint = rc.Endpoint(server.base_url, "judge", api_key_env="JUDGE_KEY")
    with open_judge(mode, endpoint) as judge:
        (verdict,) = judge.judge([server.script(answers(401)).sample()])
    assert verdict.status == "failed"
    assert "set JUDGE_KEY" in str(verdict.error)


def test_a_redirect_is_not_followed_and_the_other_host_hears_nothing(
    shared_judge: rc.Judge, server: HostileServer
) -> None:
    with HostileServer() as other:
        for status in (301, 302, 303, 307, 308):
            script = server.script(answers(status, "", Location=f"{other.base_url}/chat/completions"))
            (verdict,) = shared_judge.judge(script.samples(1))
            assert (verdict.status, script.requests) == ("failed", 1)
            assert "redirect" in str(verdict.error)
        assert (other.connections, other.unknown) == (0, 0)


# Endpoints that never come to an end.

ENDLESS = {
    "silent": silent,
    "trickling body": trickling_body,
    "trickling headers": trickling_headers,
    "endless headers": endless_headers,
    "endless 1xx": endless_interim,
}


def test_the_total_deadline_ends_what_never_ends(mode: str, open_judge: Opener, server: HostileServer) -> None:
    scripts = [server.script(behaviour) for behaviour in ENDLESS.values()]
    samples = [script.sample() for script in scripts]
    at_once, verdicts = 1 if mode == "sync" else len(samples), []
    with open_judge(mode, **({"workers": at_once} if mode == "process" else {})) as judge:
        assert {verdict.status for verdict in judge.judge(server.script(together(at_once)).samples(5))} == {"ok"}
        for script in scripts if mode == "sync" else ():
            verdicts += timed_out(judge, [script.sample()], lambda _, script=script: script.requests)
        if mode != "sync":
            verdicts = timed_out(judge, samples, lambda _: all(script.requests for script in scripts))
    assert dict(zip(ENDLESS, [verdict.status for verdict in verdicts], strict=True)) == dict.fromkeys(
        ENDLESS, "timeout"
    )
    assert [script.requests for script in scripts] == [1] * 5


# Memory.


def _status(process: str, field: str) -> int:
    """A line of /proc/<process>/status, in MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) // 1024
    raise LookupError(field)


@pytest.fixture
def memory_is_bounded(shared_judge: rc.Judge) -> Iterator[None]:
    """No process of ours peaks 64 MiB or more above what it held before."""
    processes = [str(os.getpid()), *map(str, leftovers.children())]
    for process in processes:
        Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak begins anew
    before = {process: _status(process, "VmRSS") for process in processes}
    yield
    growth = {process: _status(process, "VmHWM") - before[process] for process in processes}
    assert max(growth.values()) < 64, growth


@pytest.mark.usefixtures("memory_is_bounded")
@pytest.mark.parametrize(
    "behaviour",
    [gzip_bomb, huge_body, huge_chunked_body, flood_of_headers],
    ids=["gzip bomb", "1 GiB", "chunks without end", "flood of headers"],
)
def test_memory_is_bounded_whatever_comes(behaviour: Behaviour, shared_judge: rc.Judge, server: HostileServer) -> None:
    verdicts = shared_judge.judge(server.script(behaviour, behaviour, ok).samples(2))
    assert {verdict.status for verdict in verdicts} <= {"failed", "ok"}


# No connection.


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def timed_out_after_an_attempt(judge: rc.Judge) -> rc.Verdict:
    """A server that is down may be starting; the deadline ends that, and tells of the last attempt.

    While a process starts there may be no attempt yet: then the next call has longer.
    """
    (verdict,) = timed_out(judge, [rc.Sample("p", "r")], lambda found: "the last attempt: " in str(found[0].error))
    return verdict


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["refused", "no such host", "no TLS", "no host name"])
def test_no_connection_is_typed_and_names_host_and_port(
    mode: str, case: str, open_judge: Opener, server: HostileServer
) -> None:
    host, kind = {
        "refused": (f"127.0.0.1:{free_port()}", "ConnectionFailed"),
        "no such host": ("nonexistent.invalid:8000", "UnknownHost: "),
        "no TLS": (f"127.0.0.1:{server.port}", "TlsFailed"),
        "no host name": (f"{'x' * 70}.invalid:80", ""),
    }[case]
    scheme = "https" if case == "no TLS" else "http"
    options = {"workers": 1} if mode == "process" else {}
    with open_judge(mode, rc.Endpoint(f"{scheme}://{host}/v1", "judge"), **options) as judge:
        if case == "refused":
            verdict = timed_out_after_an_attempt(judge)
        else:
            (verdict,) = judge.judge([rc.Sample("p", "r")])
    if kind == "ConnectionFailed":
        assert verdict.status == "timeout", verdict
        assert "the last attempt: " in str(verdict.error)
    else:
        assert verdict.status == "failed", verdict
        assert kind in str(verdict.error)
    assert host in str(verdict.error)

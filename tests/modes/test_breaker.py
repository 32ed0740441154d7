"""What ends a run, how far that reaches, and what is a sample's or a rubric's own."""

from __future__ import annotations

import re

import pytest

import rewardcore as rc
from tests.modes import failing_rubrics
from tests.modes.conftest import CONCURRENT_MODES, Opener
from tests.modes.hostile_server import HostileServer, answers, breathing, held, says


@pytest.mark.parametrize("status", [403, 404])
def test_once_something_is_judged_a_403_or_404_is_that_samples_own(
    mode: str, status: int, open_judge: Opener, server: HostileServer
) -> None:
    fine, filtered = server.script(breathing), server.script(answers(status, "content filter"))
    samples = fine.samples(60)
    samples.insert(50, filtered.sample())
    with open_judge(mode, max_concurrent=4) as judge:
        verdicts = judge.judge(samples)
    assert verdicts.pop(50).status == "failed"
    assert [verdict.status for verdict in verdicts] == ["ok"] * 60
    assert (fine.requests, filtered.requests) == (60, 1)


@pytest.mark.parametrize("status", [403, 404])
def test_while_nothing_is_judged_a_403_or_404_ends_the_run(
    mode: str, status: int, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(answers(status))
    with open_judge(mode, max_concurrent=2) as judge:
        verdicts = judge.judge(script.samples(30))
    assert {verdict.status for verdict in verdicts} == {"failed"}
    assert script.requests <= 2


@pytest.mark.parametrize("body", [b"", b'{"error": {"code": "insufficient_quota"}}'], ids=["401", "insufficient_quota"])
def test_a_denied_key_or_a_used_up_quota_ends_a_run_in_its_midst(
    mode: str, body: bytes, open_judge: Opener, server: HostileServer
) -> None:
    denied = server.script(answers(429 if body else 401, body))
    samples = server.script(breathing).samples(80)
    samples.insert(20, denied.sample())
    with open_judge(mode, max_concurrent=2) as judge:
        verdicts = judge.judge(samples)
    assert [verdict.status for verdict in verdicts[:18]] == ["ok"] * 18
    assert [verdict.status for verdict in verdicts[30:]] == ["failed"] * 51


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_a_breaker_ends_with_the_call_that_met_it(mode: str, open_judge: Opener, server: HostileServer) -> None:
    slow, denied = server.script(held), server.script(answers(401))
    with open_judge(mode) as judge:
        older = judge.submit([slow.sample()])
        slow.saw(1)
        assert [verdict.status for verdict in judge.judge([denied.sample()])] == ["failed"]
        for _ in range(3):
            later = judge.judge(server.script(breathing).samples(3))
            assert [verdict.status for verdict in later] == ["ok"] * 3
        slow.release()
        assert [verdict.status for verdict in older.result(timeout=25.0)] == ["ok"]


@pytest.mark.parametrize("kind", ["RateLimited", "Denied", "ConnectionFailed", "WrongPath"])
@pytest.mark.parametrize("where", ["messages", "parse"])
def test_a_failure_that_a_rubric_raises_is_the_rubrics_whatever_its_class(
    mode: str, kind: str, where: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(breathing)
    poisoned = server.script(says("poison <score>7</score>")).sample("poison")
    with open_judge(mode, rubric=failing_rubrics.Raises(kind, where), max_concurrent=4) as judge:
        first, *others = judge.judge([poisoned, *script.samples(20)])
        requests = judge.stats.requests
    assert first.error is not None
    assert first.error.startswith("RubricFailed: ")
    assert f"{kind}: out of the rubric" in first.error
    assert [verdict.status for verdict in others] == ["ok"] * 20
    assert requests == (20 if where == "messages" else 21)


@pytest.mark.parametrize("where", ["messages", "parse"])
def test_a_rubric_that_holds_up_the_loop_is_named_once(
    mode: str, where: str, open_judge: Opener, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    with open_judge(mode, rubric=failing_rubrics.Spins(where)) as judge:
        verdicts = judge.judge(server.script(breathing).samples(3))
        judge.judge(server.script(breathing).samples(2))
    assert [verdict.status for verdict in verdicts] == ["ok"] * 3
    told = [record.getMessage() for record in caplog.records if "the rubric's" in record.getMessage()]
    if mode == "process" and where == "parse":  # which holds up a worker, and nobody else
        assert told == []
    else:
        (line,) = told
        assert re.match(rf"the rubric's Spins\.{where} took \d+\.\d+ s for one sample", line)
        assert "delays every judge of this process" in line


def test_a_quick_rubric_is_not_named(
    mode: str, shared_judge: rc.Judge, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    shared_judge.judge(server.script(breathing).samples(20))
    assert not [record for record in caplog.records if "the rubric's" in record.getMessage()]

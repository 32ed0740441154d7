"""How far a batch is: `pending.progress`, a function that is told, and lines for whoever watches without a terminal."""

from __future__ import annotations

import pytest

import rewardcore as rc
from rewardcore.progress import Progress, watching
from tests.modes.conftest import Opener
from tests.modes.hostile_server import HostileServer, answers, eventually, held, ok


def test_a_pending_batch_says_how_far_it_is(shared_judge: rc.Judge, server: HostileServer, mode: str) -> None:
    quick, slow, bad = server.script(ok), server.script(held), server.script(answers(400))
    pending = shared_judge.submit([*quick.samples(3), bad.sample(), *slow.samples(1)])
    assert pending.progress.total == 5
    if mode != "sync":  # which begins when somebody waits
        eventually(lambda: pending.progress == (4, 5, 1), "four verdicts")
    slow.release()
    pending.result()
    assert pending.progress == (5, 5, 1)


def test_whoever_asks_is_told_in_the_callers_thread(shared_judge: rc.Judge, server: HostileServer) -> None:
    told: list[Progress] = []
    verdicts = shared_judge.judge(
        [*server.script(ok).samples(20), server.script(answers(400)).sample()], progress=told.append
    )
    assert len(verdicts) == 21
    assert told[-1] == (21, 21, 1)
    assert [progress.done for progress in told] == sorted(progress.done for progress in told)
    assert {progress.total for progress in told} == {21}


def test_ctrl_c_while_somebody_is_told_cancels_the_batch(mode: str, open_judge: Opener, server: HostileServer) -> None:
    def enough(progress: Progress) -> None:
        raise KeyboardInterrupt("enough")

    script = server.script(held)
    with open_judge(mode) as judge:
        with pytest.raises(KeyboardInterrupt, match="enough"):
            judge.judge(script.samples(2), progress=enough)
        script.release()
        assert [verdict.status for verdict in judge.judge(server.script(ok).samples(2))] == ["ok", "ok"]


def test_lines_come_after_a_while_and_then_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("rewardcore.progress.time.monotonic", lambda: now)
    with watching(True) as tell:
        for done in range(0, 301):
            now = done / 10
            tell(Progress(done, 300, done // 100))
    assert capsys.readouterr().err.splitlines() == [
        "20 of 300 judged, about 28 s left",
        "120 of 300 judged, 1 failed, about 18 s left",
        "220 of 300 judged, 2 failed, about 8 s left",
        "300 of 300 judged, 3 failed",
    ]


def test_what_is_quickly_done_needs_no_line(shared_judge: rc.Judge, capsys: pytest.CaptureFixture[str]) -> None:
    assert shared_judge.judge([], progress=True) == []
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with watching(True) as tell:
        tell(Progress(3, 10, 1))
        tell(Progress(10, 10, 1))
    shown = capsys.readouterr().err
    assert "judged, 1 failed" in shown
    assert "10/10" in shown

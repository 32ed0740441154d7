"""`background="process"`: the parent keeps its word by itself, whatever has become of the child."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

import rewardcore as rc
from rewardcore.http import processes
from tests.modes import leftovers
from tests.modes.conftest import Opener
from tests.modes.deadlines import hurried
from tests.modes.hostile_server import HostileServer, held, ok

MODE = "asyncio-child-process"
#: Whoever waits for a stopped child waits for longer, and whoever does not needs a few seconds.
GUARD = 50.0


def statuses(verdicts: list[rc.Verdict]) -> list[str]:
    return [verdict.status for verdict in verdicts]


def within_the_guard(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(GUARD)
    assert not thread.is_alive(), "it waits for a child that is stopped"


def test_the_child_starts_when_the_judge_is_opened(open_judge: Opener) -> None:
    """With its pipe at hand: beside a busy main thread the first call took five seconds to get that far."""
    before = leftovers.children()
    with open_judge(MODE) as judge:
        assert len(leftovers.children() - before) == 1
        assert judge._driver._child.connecting.done()  # type: ignore[attr-defined]


@pytest.mark.parametrize("moment", ["starting", "idle", "judging"])
def test_a_child_that_is_stopped_holds_nobody_up(moment: str, open_judge: Opener, server: HostileServer) -> None:
    before, script = leftovers.children(), server.script(held)
    judge = open_judge(MODE)
    (child,) = leftovers.children() - before
    if moment != "starting":
        assert statuses(judge.judge(server.script(ok).samples(2))) == ["ok"] * 2
    if moment == "judging":
        with hurried(judge, 5.0):
            pending = judge.submit(script.samples(3))
        script.saw(3)
    os.kill(child, signal.SIGSTOP)
    try:
        if moment != "judging":
            with hurried(judge, 1.0):
                pending = judge.submit(script.samples(3))
        verdicts = pending.result(timeout=GUARD)
        assert statuses(verdicts) == ["timeout"] * 3
        assert all("the process that judges does not answer" in str(verdict.error) for verdict in verdicts)
        within_the_guard(lambda: [judge.stats for _ in range(20)])
        assert judge.stats.failed["DeadlinePassed"] == 3
        within_the_guard(judge.close)
        assert leftovers.children() == before
    finally:
        if child in leftovers.children():
            os.kill(child, signal.SIGKILL)


def test_a_child_that_goes_on_judges_on(open_judge: Opener, server: HostileServer) -> None:
    before, fine = leftovers.children(), server.script(ok)
    with open_judge(MODE) as judge:
        assert statuses(judge.judge(fine.samples(2))) == ["ok"] * 2
        (child,) = leftovers.children() - before
        os.kill(child, signal.SIGSTOP)
        with hurried(judge, 1.0):
            assert statuses(judge.submit(fine.samples(3)).result(timeout=GUARD)) == ["timeout"] * 3
        os.kill(child, signal.SIGCONT)
        assert statuses(judge.judge(fine.samples(3))) == ["ok"] * 3
        assert leftovers.children() - before == {child}


def test_a_child_that_cannot_be_spawned_fails_that_call_and_no_later_one(
    open_judge: Opener, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    script = server.script(ok)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "spawn", refused)
        with open_judge(MODE) as never:
            assert statuses(never.submit(script.samples(2)).result(timeout=GUARD)) == ["failed"] * 2
        judge = open_judge(MODE)
        for verdict in judge.submit(script.samples(2)).result(timeout=GUARD):
            assert str(verdict.error).startswith("WorkerDied: a child process could not start: BlockingIOError: ")
    with judge:
        assert statuses(judge.judge(script.samples(2))) == ["ok"] * 2

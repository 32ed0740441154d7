"""How a judge ends: for everybody who closes it at once, and by itself where nobody ever will."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path

from rewardcore.calls import Call, Driver, open_drivers
from rewardcore.clock import SYSTEM_CLOCK
from rewardcore.http.cache_contents import find
from rewardcore.judge import Judge
from rewardcore.stats import Stats
from tests.modes import leftovers
from tests.modes.conftest import MODES, Opener
from tests.modes.hostile_server import HostileServer, breathing, eventually, held
from tests.modes.scripts import run_script


class Slow(Driver):
    """Is closed when the test says so."""

    def __init__(self) -> None:
        super().__init__(SYSTEM_CLOCK)
        self.is_closing, self.may_close, self.is_closed = threading.Event(), threading.Event(), False
        self.closes = 0

    def begin(self, call: Call) -> None: ...

    def abandon(self, call: Call) -> None: ...

    def stats(self) -> Stats:
        return Stats()

    def close(self) -> None:
        self.closes += 1
        self.is_closing.set()
        self.may_close.wait(30.0)
        self.is_closed = True


def test_whoever_closes_returns_when_it_is_closed() -> None:
    driver = Slow()
    judge, found = Judge("slow", lambda: driver, 1.0, 1), []

    def close() -> None:
        judge.close()
        found.append(driver.is_closed)

    threads = [threading.Thread(target=close) for _ in range(3)]
    threads[0].start()
    assert driver.is_closing.wait(30.0)
    for thread in threads[1:]:
        thread.start()
        thread.join(0.2)  # time enough to come back too early
    driver.may_close.set()
    for thread in threads:
        thread.join(30.0)
    assert (found, driver.closes) == ([True] * 3, 1)


def test_a_handler_that_closes_in_the_midst_of_a_close_waits_for_nobody() -> None:
    driver = Slow()
    judge = Judge("slow", lambda: driver, 1.0, 1)
    driver.may_close.set()
    driver.close = lambda: judge.close()  # type: ignore[method-assign]
    judge.close()
    assert driver not in open_drivers


def test_two_that_close_find_every_batch_told(mode: str, open_judge: Opener, server: HostileServer) -> None:
    judge, found = open_judge(mode), []
    pending = judge.submit(server.script(held).samples(5))
    if mode == "sync":  # which begins when somebody waits
        threading.Thread(target=pending.wait, daemon=True).start()

    def close() -> None:
        judge.close()
        found.append(pending.done())

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert found == [True] * 4


def test_a_judge_that_is_dropped_unclosed_lets_everything_go(
    mode: str, open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    script, judges = server.script(breathing), []
    with open_judge(mode) as judge:  # what a process opens once, it keeps
        judge.judge(script.samples(2))
    files, threads, children = len(os.listdir("/proc/self/fd")), leftovers.threads(), leftovers.children()
    for number in range(3):
        judge = open_judge(mode, cache=tmp_path / f"{number}.sqlite")
        assert [verdict.status for verdict in judge.judge(script.samples(2))] == ["ok", "ok"]
        judges.append(weakref.ref(judge))
        del judge
    gc.collect()
    assert [found() for found in judges] == [None] * 3
    eventually(lambda: leftovers.threads() <= threads, "no thread is left")
    eventually(lambda: leftovers.children() <= children, "no child is left")
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= files, "no file is left")
    assert [len(find(tmp_path / f"{number}.sqlite")) for number in range(3)] == [2] * 3


def test_whoever_holds_a_batch_or_a_stream_keeps_its_judge(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(breathing)
    pending, stream = open_judge(mode).submit(script.samples(8)), open_judge(mode).stream(script.samples(8))
    gc.collect()
    assert [verdict.status for verdict in pending.result(timeout=25.0)] == ["ok"] * 8
    assert sorted(index for index, verdict in stream if verdict.status == "ok") == list(range(8))


_DROPPED = """
import sys
import rewardcore as rc

if __name__ == "__main__":
    mode, options, base_url, marker, path = sys.argv[1:]
    samples = [rc.Sample(f"[[{marker}]]", str(number)) for number in range(20)]
    rc.open_judge(mode, rc.Endpoint(base_url, "judge"), cache=path, **eval(options)).judge(samples)
"""


def test_a_judge_that_was_dropped_just_before_the_exit_still_puts_its_cache_on_disk(
    mode: str, server: HostileServer, tmp_path: Path
) -> None:
    name, options = MODES[mode]
    path = tmp_path / "judge.sqlite"
    arguments = name, repr(options), server.base_url, server.script(breathing).marker, str(path)
    assert run_script(_DROPPED, *arguments) == ("", "", 0)
    assert len(find(path)) == 20

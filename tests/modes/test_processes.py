"""Child processes: the ones that die, the ones that must not be left, Ctrl-C and exits without close()."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import rewardcore as rc
from rewardcore.http.cache_contents import find
from tests.modes import leftovers
from tests.modes.conftest import Opener
from tests.modes.custom_rubrics import DiesInParse, RaisesAwkwardly, Unpicklable
from tests.modes.hostile_server import HostileServer, eventually, held, ok, says, silent
from tests.modes.scripts import ended, run_script, started


def statuses(verdicts: list[rc.Verdict]) -> list[str]:
    return [verdict.status for verdict in verdicts]


class NotesWhenReady:
    """A worker's set-up that takes a while, and notes when it was over."""

    def __init__(self, path: Path, seconds: float = 0.3) -> None:
        self.path, self.seconds = path, seconds

    def __call__(self) -> None:
        threading.Event().wait(self.seconds)
        self.path.write_text(str(time.monotonic()))


def new_children(before: set[int]) -> list[int]:
    return sorted(leftovers.children() - before)


def test_the_samples_of_a_killed_worker_are_judged_by_another(open_judge: Opener, server: HostileServer) -> None:
    script, before = server.script(held), leftovers.children()
    with open_judge("process", workers=1) as judge:
        pending = judge.submit(script.samples(3))
        script.saw(1)
        (worker,) = new_children(before)
        os.kill(worker, signal.SIGKILL)
        script.saw(2)
        script.release()
        assert statuses(pending.result()) == ["ok"] * 3
        assert [child for child in new_children(before) if child == worker] == []
    assert script.requests == 4


def test_a_workers_start_is_no_latency_of_the_endpoints(
    open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    noted = tmp_path / "ready"
    with open_judge("process", workers=1, worker_setup=NotesWhenReady(noted)) as judge:
        (verdict,) = judge.judge(server.script(ok).samples(1))
        since = time.monotonic() - float(noted.read_text())
        assert 0.0 < verdict.latency <= since
        assert judge.stats.p99 == verdict.latency


def test_a_request_has_not_stalled_while_its_worker_starts_and_can_stall_from_then_on(
    open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    setup = NotesWhenReady(tmp_path / "ready", seconds=4.0)
    fine, stalls = server.script(ok), server.script(silent, ok)
    with open_judge("process", workers=1, worker_setup=setup, request_timeout=3.0) as judge:
        assert [verdict.attempts for verdict in judge.judge(fine.samples(2))] == [1, 1]
    with open_judge("process", workers=1, worker_setup=setup, request_timeout=3.0) as judge:
        assert [verdict.attempts for verdict in judge.judge(stalls.samples(1))] == [2]
    assert (fine.requests, stalls.requests) == (2, 2)


def test_a_sample_that_kills_every_worker_fails_alone(open_judge: Opener, server: HostileServer) -> None:
    poison, fine = server.script(says("poison")), server.script(ok)
    with open_judge("process", workers=1, rubric=DiesInParse()) as judge:
        verdicts = judge.judge([poison.sample(), *fine.samples(2)])
    assert statuses(verdicts) == ["failed", "ok", "ok"]
    assert str(verdicts[0].error).startswith("WorkerDied: ")
    assert poison.requests == 2


def test_an_error_that_cannot_come_back_from_a_worker_fails_its_sample_alone(
    open_judge: Opener, server: HostileServer
) -> None:
    poison, fine = server.script(says("poison")), server.script(ok)
    with open_judge("process", workers=1, rubric=RaisesAwkwardly()) as judge:
        verdicts = judge.judge([poison.sample(), *fine.samples(2)])
    assert statuses(verdicts) == ["failed", "ok", "ok"]
    assert poison.requests == 1


def test_a_killed_child_fails_its_samples_typed_and_the_next_call_works(
    open_judge: Opener, server: HostileServer
) -> None:
    stuck, fine, before = server.script(silent), server.script(ok), leftovers.children()
    with open_judge("asyncio-child-process") as judge:
        for _ in range(2):
            seen = stuck.requests
            pending = judge.submit(stuck.samples(2))
            stuck.saw(seen + 2)
            (child,) = new_children(before)
            os.kill(child, signal.SIGKILL)
            verdicts = pending.result()
            assert statuses(verdicts) == ["failed"] * 2
            assert all(str(verdict.error).startswith("WorkerDied: ") for verdict in verdicts)
            assert judge.stats.in_flight == 0
        assert statuses(judge.judge(fine.samples(2))) == ["ok", "ok"]


def test_a_child_that_died_while_idle_is_replaced(open_judge: Opener, server: HostileServer) -> None:
    fine, before = server.script(ok), leftovers.children()
    with open_judge("asyncio-child-process") as judge:
        assert statuses(judge.judge(fine.samples(1))) == ["ok"]
        os.kill(*new_children(before), signal.SIGKILL)
        verdicts = judge.judge(fine.samples(1))  # the kill may be noticed before or after this call has begun
        assert verdicts[0].status == "ok" or str(verdicts[0].error).startswith("WorkerDied: ")
        assert statuses(judge.judge(fine.samples(1))) == ["ok"]


def test_close_after_the_child_was_killed_is_quiet(open_judge: Opener, server: HostileServer) -> None:
    before = leftovers.children()
    with open_judge("asyncio-child-process") as judge:
        assert statuses(judge.judge(server.script(ok).samples(1))) == ["ok"]
        os.kill(*new_children(before), signal.SIGKILL)


@pytest.mark.parametrize("mode", ["process", "asyncio-child-process"])
def test_what_cannot_travel_is_a_clear_error_up_front(mode: str, open_judge: Opener) -> None:
    with pytest.raises(rc.ConfigurationError, match="rubric must be picklable"):
        open_judge(mode, rubric=Unpicklable())


def test_a_sample_that_cannot_travel_fails_alone(open_judge: Opener, server: HostileServer) -> None:
    script = server.script(ok)
    samples = script.samples(3)
    samples[1] = script.sample("1", extra={"a function": lambda: None})
    with open_judge("asyncio-child-process") as judge:
        verdicts = judge.judge(samples)
    assert statuses(verdicts) == ["ok", "failed", "ok"]
    assert "extra" in str(verdicts[1].error)


# Scripts of their own.

HEAD = """
import json, sys
import rewardcore as rc

MODES = {
    "sync": ("sync", {}),
    "process": ("process", {"workers": 2}),
    "asyncio-aiohttp": ("asyncio", {}),
    "asyncio-httpx": ("asyncio", {"transport": "httpx"}),
    "asyncio-child-process": ("asyncio", {"background": "process"}),
}

def open_judge(base_url, mode, **options):
    name, more = MODES[mode]
    return rc.open_judge(name, rc.Endpoint(base_url, "judge"), deadline=600.0, **more, **options)

def samples(marker):
    return [rc.Sample(f"[[{marker}]]", str(number)) for number in range(2)]
"""

INTERRUPTED = (
    HEAD
    + """
def main(base_url, marker, mode, cache):
    try:
        with open_judge(base_url, mode, cache=cache) as judge:
            judge.judge(samples(marker))
    except KeyboardInterrupt:
        from tests.modes import leftovers
        print(json.dumps(leftovers.everything()))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
)


def test_ctrl_c_leaves_nothing_behind(mode: str, server: HostileServer, tmp_path: Path) -> None:
    """As a terminal sends it: to the whole process group, while requests are on the wire."""
    script = server.script(silent)
    with started(INTERRUPTED, server.base_url, script.marker, mode, str(tmp_path / "cache.sqlite")) as process:
        script.saw(1)
        os.killpg(process.pid, signal.SIGINT)
        output, errors, code = ended(process)
    assert (errors, code) == ("", 0)
    assert not any(json.loads(output).values()), output
    eventually(lambda: script.in_flight == 0, "the connections are gone")


GIVEN_UP = (
    HEAD
    + """
import os, signal, socket, threading
import httpcore._synchronization

def give_up():
    os.kill(os.getpid(), signal.SIGUSR1)

def while_it_connects():
    def connect(*arguments, **options):
        socket.create_connection = undisturbed
        connection = undisturbed(*arguments, **options)
        give_up()
        return connection

    undisturbed, socket.create_connection = socket.create_connection, connect

def while_it_takes_a_lock():
    def enter(lock):
        Lock.__enter__ = undisturbed
        undisturbed(lock)
        threading.Timer(0.1, give_up).start()  # as a parent does until it is heard
        give_up()
        return lock

    Lock = httpcore._synchronization.ThreadLock
    undisturbed, Lock.__enter__ = Lock.__enter__, enter

def main(base_url, marker, setup):
    options = {"workers": 1, "worker_setup": globals()[setup], "deadline": 60.0}
    with rc.open_judge("process", rc.Endpoint(base_url, "judge"), **options) as judge:
        print(*(verdict.status for verdict in judge.judge(samples(marker))), judge.stats.retried)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
)


@pytest.mark.parametrize("setup", ["while_it_connects", "while_it_takes_a_lock"])
def test_a_request_that_is_given_up_between_two_steps_of_its_client_harms_no_later_one(
    setup: str, server: HostileServer
) -> None:
    script = server.script(ok)
    output, errors, code = run_script(GIVEN_UP, server.base_url, script.marker, setup)
    assert (output, code) == ("ok ok 1\n", 0)
    assert [line for line in errors.splitlines() if not line.startswith("rewardcore: ")] == []


UNCLOSED = (
    HEAD
    + """
def main(base_url, marker, mode, cache):
    verdicts = open_judge(base_url, mode, cache=cache).judge(samples(marker))
    print(*(verdict.status for verdict in verdicts))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
)


def test_a_judge_that_is_never_closed_still_puts_its_cache_on_disk(
    mode: str, server: HostileServer, tmp_path: Path
) -> None:
    script, path = server.script(ok), tmp_path / "cache.sqlite"
    assert run_script(UNCLOSED, server.base_url, script.marker, mode, str(path)) == ("ok ok\n", "", 0)
    assert len(find(path)) == 2


KILLED = (
    HEAD
    + """
def main(base_url, marker, mode):
    with open_judge(base_url, mode) as judge:
        judge.judge(samples(marker))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""
)


@pytest.mark.parametrize("mode", ["process", "asyncio-child-process"])
def test_no_child_outlives_a_parent_that_is_killed(mode: str, server: HostileServer) -> None:
    script = server.script(silent)
    with started(KILLED, server.base_url, script.marker, mode) as process:
        script.saw(2)
        group = process.pid
        process.kill()
        process.wait()
        eventually(lambda: not _group(group), "every process of the group is gone")


def _group(group: int) -> list[str]:
    """Who runs in a process group; multiprocessing's resource tracker ends a moment later by itself."""
    members = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if entry.name.isdigit() and int(fields[2]) == group and fields[0] != "Z":
            members.append(entry.name)
    return members

"""Forks at bad moments, caches on both sides of a fork, and multiprocessing's children, which end without `atexit`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from rewardcore.http.cache_contents import find
from tests.modes.conftest import MODES
from tests.modes.hostile_server import HostileServer, ok
from tests.modes.scripts import run_script

HEAD = """
import json, os, signal, sys, threading, traceback
import rewardcore as rc

def open_judge(cache=None):
    name, options = json.loads(sys.argv[3])
    return rc.open_judge(name, rc.Endpoint(sys.argv[1], "judge"), deadline=30.0, cache=cache, **options)

def judged(judge, what, count):
    verdicts = judge.judge(rc.Sample(f"[[{sys.argv[2]}]]", f"{what} {number}") for number in range(count))
    assert [verdict.status for verdict in verdicts] == ["ok"] * count, verdicts
    return [verdict.cached for verdict in verdicts]

def forked(function):
    '''The process id of a child that runs the function and nothing else, and never for long.'''
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(20)
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid

def ended_well(pid):
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"
"""


def rows(path: Path) -> set[str]:
    """The keys in a file that is whole."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    return {found.key for found in find(path, newest=1000)}


# While the client is being imported.

IMPORTING = (
    HEAD
    + """
import importlib.abc

class Lingering(importlib.abc.MetaPathFinder):
    '''Holds the client's import open until there was a fork, or a while where the fork waits for the import.'''

    def find_spec(self, name, path, target=None):
        if name == sys.argv[4] and not importing.is_set():
            importing.set()
            fork_is_over.wait(0.5)

def judge_it(who):
    with open_judge() as judge:
        judged(judge, who, 3)
    done.append(who)

def in_the_child():
    sys.meta_path.remove(lingering)
    judge_it("child")

def main():
    thread = threading.Thread(target=judge_it, args=("parent",), daemon=True)
    thread.start()
    assert importing.wait(20) or sys.argv[4] in sys.modules
    pid = forked(in_the_child)
    fork_is_over.set()
    thread.join(20)
    assert done == ["parent"]
    ended_well(pid)
    print("fine")

importing, fork_is_over, done = threading.Event(), threading.Event(), []
lingering = Lingering()
sys.meta_path.insert(0, lingering)

if __name__ == "__main__":
    main()
"""
)


@pytest.mark.parametrize(("mode", "client"), [("asyncio-aiohttp", "aiohttp"), ("asyncio-httpx", "httpx")])
def test_a_fork_while_another_thread_imports_the_client(mode: str, client: str, server: HostileServer) -> None:
    script = server.script(ok)
    run = run_script(IMPORTING, server.base_url, script.marker, json.dumps(MODES[mode]), client)
    assert run == ("fine\n", "", 0)
    assert script.requests == 6


IMPORTED = (
    HEAD
    + """
from rewardcore.forks import no_fork

class Watching:
    def find_spec(self, name, path, target=None):
        if not no_fork._is_owned():
            unheld.append(name)

unheld = []
if __name__ == "__main__":
    sys.meta_path.insert(0, Watching())
    with open_judge() as judge:
        judged(judge, "anything", 3)
    # What is not there is looked for again each time, and leaves no module half imported.
    print(sorted({name for name in unheld if name in sys.modules}))
"""
)


@pytest.mark.parametrize("mode", ["sync", "asyncio-aiohttp", "asyncio-httpx"])
def test_whatever_comes_with_a_mode_or_its_first_request_is_imported_where_no_fork_can_come_between(
    mode: str, server: HostileServer
) -> None:
    run = run_script(IMPORTED, server.base_url, server.script(ok).marker, json.dumps(MODES[mode]))
    assert run == ("[]\n", "", 0)


# A cache that the caller brought.

CACHE = (
    HEAD
    + """
from rewardcore.http.cache_contents import find
from tests.modes.hostile_server import eventually

def main():
    cache = rc.SqliteCache(sys.argv[4])
    judge = open_judge(cache)
    judged(judge, "before", 5)
    eventually(lambda: len(find(cache.path)) == 5, "nothing is being written")
    told, tell = os.pipe()

    def in_the_child():
        assert os.read(told, 1) == b"."
        assert all(judged(judge, "before", 5) + judged(judge, "parent", 5))
        assert not any(judged(judge, "child", 5))
        judge.close()
        cache.close()

    pid = forked(in_the_child)
    assert not any(judged(judge, "parent", 5))
    eventually(lambda: len(find(cache.path)) == 10, "the parent's rows are in the file")
    os.write(tell, b".")
    ended_well(pid)
    assert all(judged(judge, "child", 5))
    assert not any(judged(judge, "after", 5))
    judge.close()
    cache.close()
    print("fine")

if __name__ == "__main__":
    main()
"""
)


@pytest.mark.parametrize("mode", ["sync", "process", "asyncio-aiohttp", "asyncio-httpx"])
def test_a_callers_cache_serves_both_sides_of_a_fork(mode: str, server: HostileServer, tmp_path: Path) -> None:
    script, path = server.script(ok), tmp_path / "cache.sqlite"
    run = run_script(CACHE, server.base_url, script.marker, json.dumps(MODES[mode]), str(path))
    assert run == ("fine\n", "", 0)
    assert len(rows(path)) == 20
    assert script.requests == 20


# Children of multiprocessing, which nobody closes a judge in.

UNCLOSED = (
    HEAD
    + """
import multiprocessing

judge = None

def work():
    signal.alarm(30)
    judged(judge or open_judge(sys.argv[4]), "child", 10)

def main(start, opened):
    global judge
    if opened == "before":
        judge = open_judge(sys.argv[4])
        judged(judge, "before", 3)
    process = multiprocessing.get_context(start).Process(target=work)
    process.start()
    process.join(40)
    exit_code = process.exitcode
    process.kill()
    assert exit_code == 0, exit_code
    if judge is not None:
        judged(judge, "after", 3)
        judge.close()
    print("fine")

if __name__ == "__main__":
    main(*sys.argv[5:])
"""
)


@pytest.mark.parametrize(("start", "opened"), [("fork", "inside"), ("fork", "before"), ("spawn", "inside")])
def test_a_judge_that_is_never_closed_in_a_child_of_multiprocessing_still_puts_its_cache_on_disk(
    mode: str, start: str, opened: str, server: HostileServer, tmp_path: Path
) -> None:
    script, path = server.script(ok), tmp_path / "cache.sqlite"
    run = run_script(UNCLOSED, server.base_url, script.marker, json.dumps(MODES[mode]), str(path), start, opened)
    assert run == ("fine\n", "", 0)
    assert len(rows(path)) == script.requests == (16 if opened == "before" else 10)

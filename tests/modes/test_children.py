"""What a child process must not lose (samples, rows, figures), and the programs from which none can be started."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import sqlite3
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rewardcore as rc
from rewardcore.http.cache_contents import find
from tests.modes import leftovers
from tests.modes.conftest import MODES, Opener
from tests.modes.hostile_server import HostileServer, eventually, ok
from tests.modes.scripts import run_inline, run_package, run_piped, run_script


def statuses(verdicts: list[rc.Verdict]) -> list[str]:
    return [verdict.status for verdict in verdicts]


# Samples that arrive in the child and cannot be read there.


class Unloadable:
    """Pickle can write it, and whoever reads it calls a function that raises."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


@pytest.fixture(params=["raises when loaded", "known to the parent alone"])
def unloadable(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    if request.param == "raises when loaded":
        return Unloadable()
    module = types.ModuleType("module_of_the_parent_alone")
    module.Known = type("Known", (), {"__module__": module.__name__})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.Known()


def test_a_sample_that_the_child_cannot_read_fails_alone(
    unloadable: object, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(ok)
    samples = script.samples(20)
    samples.insert(10, script.sample("poison", extra={"it": unloadable}))
    with open_judge("asyncio-child-process") as judge:
        for _ in range(2):
            verdicts = judge.judge(samples)
            assert statuses(verdicts) == ["ok"] * 10 + ["failed"] + ["ok"] * 10
            assert "extra" in str(verdicts[10].error)
        assert statuses(judge.judge(samples[10:11])) == ["failed"]
        assert statuses(judge.judge(samples[:2])) == ["ok", "ok"]
    assert script.requests == 42


async def test_a_streamed_sample_that_the_child_cannot_read_fails_alone(
    unloadable: object, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(ok)
    samples = script.samples(20)
    samples.insert(10, script.sample("poison", extra={"them": [unloadable]}))
    with open_judge("asyncio-child-process") as judge:
        verdicts = {index: verdict async for index, verdict in judge.astream(samples)}
    assert [verdicts[index].status for index in range(21)] == ["ok"] * 10 + ["failed"] + ["ok"] * 10
    assert "extra" in str(verdicts[10].error)


# Rows that are on disk when close() returns.


def rows(path: Path) -> int:
    return len(find(path, newest=1000))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes to the database, and takes its time."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=30.0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")


def lost_while_locked(
    modes: list[str], seconds: float, open_judge: Opener, server: HostileServer, tmp_path: Path
) -> dict[str, int]:
    """How many replies of each mode are not on disk when close() has returned.

    All modes at once, each with its own file and its own number of samples, 51 and up. The files are locked for so
    many seconds, or until every close() has returned.
    """
    paths = {mode: tmp_path / f"{mode}.sqlite" for mode in modes}
    counts = {mode: number for number, mode in enumerate(modes, 51)}
    script = server.script(ok)
    with contextlib.ExitStack() as judges, contextlib.ExitStack() as locks:
        opened = {mode: judges.enter_context(open_judge(mode, cache=paths[mode])) for mode in modes}
        for mode, judge in opened.items():
            assert statuses(judge.judge([script.sample("before the lock")])) == ["ok"]
            eventually(lambda path=paths[mode]: rows(path) == 1, "whoever writes has begun")
        for mode, judge in opened.items():
            locks.enter_context(locked(paths[mode]))
            assert statuses(judge.judge(script.samples(counts[mode]))) == ["ok"] * counts[mode]
        closings = [threading.Thread(target=judge.close, daemon=True) for judge in opened.values()]
        for closing in closings:
            closing.start()
        release_at = time.monotonic() + seconds
        for closing in closings:
            closing.join(max(0.0, release_at - time.monotonic()))
        locks.close()
        for closing in closings:
            closing.join(60.0)
            assert not closing.is_alive()
    return {mode: counts[mode] + 1 - rows(paths[mode]) for mode in modes}


def test_every_row_is_on_disk_when_close_returns_however_busy_the_database_was(
    open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    assert lost_while_locked(list(MODES), 7.0, open_judge, server, tmp_path) == dict.fromkeys(MODES, 0)


def test_rows_that_close_could_not_put_on_disk_are_counted_in_a_warning(
    open_judge: Opener, server: HostileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """How long close() tries is its own affair; if it gives up, it says what is lost."""
    modes = ["sync", "asyncio-aiohttp", "asyncio-child-process"]
    with caplog.at_level(logging.WARNING, "rewardcore"):
        lost = lost_while_locked(modes, 70.0, open_judge, server, tmp_path)
    told = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    warnings = "\n".join(told).replace(str(tmp_path), "")  # which has numbers of its own
    untold = {mode: number for mode, number in lost.items() if number and not re.search(rf"\b{number}\b", warnings)}
    assert untold == {}, warnings


# Figures.


def kill(child: int) -> None:
    """Dead when this returns, whether or not its parent has noticed."""
    os.kill(child, signal.SIGKILL)

    def is_dead() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    eventually(is_dead, "the child is dead")


def judge_until_ok(judge: rc.Judge, samples: list[rc.Sample]) -> None:
    """A call right after a death may be the one that notices it; nothing of it was sent."""

    def judged() -> bool:
        verdicts = judge.judge(samples)
        assert all(v.status == "ok" or str(v.error).startswith("WorkerDied: ") for v in verdicts), verdicts
        return {"ok"} == set(statuses(verdicts))

    eventually(judged, "another child judges")


def test_statistics_survive_the_death_of_an_idle_child(open_judge: Opener, server: HostileServer) -> None:
    scripts, before = [server.script(ok) for _ in range(3)], leftovers.children()
    with open_judge("asyncio-child-process") as judge:
        for script in scripts:
            judge_until_ok(judge, script.samples(10))
            if script is not scripts[-1]:
                kill(*leftovers.children() - before)
        stats = judge.stats
        assert [script.requests for script in scripts] == [10, 10, 10]
        assert (stats.requests, stats.prompt_tokens, stats.completion_tokens) == (30, 300, 150)
        assert stats.in_flight == 0
        assert stats.p50 is not None
    assert judge.stats.requests == 30


def test_statistics_are_current_when_judge_returns(mode: str, open_judge: Opener, server: HostileServer) -> None:
    script = server.script(ok)
    with open_judge(mode) as judge:
        for number in range(1, 6):
            assert statuses(judge.judge(script.samples(4))) == ["ok"] * 4
            stats = judge.stats
            assert (stats.requests, stats.in_flight) == (script.requests, 0) == (4 * number, 0)
    assert judge.stats.requests == 20


def test_statistics_are_current_after_a_death(open_judge: Opener, server: HostileServer) -> None:
    script, before = server.script(ok), leftovers.children()
    with open_judge("asyncio-child-process") as judge:
        judge_until_ok(judge, script.samples(4))
        kill(*leftovers.children() - before)
        for number in range(2, 6):
            judge_until_ok(judge, script.samples(4))
            assert judge.stats.requests == script.requests == 4 * number


def test_statistics_are_current_in_every_thread(mode: str, open_judge: Opener, server: HostileServer) -> None:
    """All judge, then all ask at once, then all judge again."""
    script, together, seen = server.script(ok), threading.Barrier(4, timeout=60.0), []

    def judge_and_ask(thread: int) -> None:
        for number in range(1, 6):
            verdicts = judge.judge(script.sample(f"{thread} {index}") for index in range(3))
            own = judge.stats.requests
            together.wait()
            seen.append((number, statuses(verdicts), own >= 3 * number, judge.stats.requests))
            together.wait()

    with open_judge(mode) as judge:
        threads = [threading.Thread(target=judge_and_ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == [(number, ["ok"] * 3, True, 12 * number) for number in range(1, 6) for _ in range(4)]


# Workers that cannot begin.


def have_no_luck() -> None:
    raise ZeroDivisionError("no luck")


def test_a_worker_setup_that_raises_is_the_reason_that_verdicts_tell(open_judge: Opener, server: HostileServer) -> None:
    script = server.script(ok)
    with open_judge("process", workers=1, worker_setup=have_no_luck) as judge:
        verdicts = judge.judge(script.samples(2))
    assert statuses(verdicts) == ["failed", "failed"]
    for verdict in verdicts:
        assert str(verdict.error).startswith("WorkerDied: ")
        assert "no luck" in str(verdict.error)
    assert script.requests == 0


# Programs of their own.

HEAD = """
import json, sys
import rewardcore as rc

sys.stdout.write("a module\\n")  # in one piece: several processes may import it at once
sys.stdout.flush()
mode, options = json.loads(sys.argv[3])
endpoint = rc.Endpoint(sys.argv[1], "judge")

def main(**more):
    try:
        with rc.open_judge(mode, endpoint, deadline=30.0, **options, **more) as judge:
            train(judge)
    except rc.ConfigurationError as error:
        print("ConfigurationError:", error, flush=True)

def train(judge):
    for verdict in judge.judge([rc.Sample(f"[[{sys.argv[2]}]]", response) for response in "ab"]):
        print(verdict.status, verdict.error or "", flush=True)
    print("training", flush=True)
"""

RUBRIC = """
class HandMade:
    def messages(self, sample):
        return [{"role": "user", "content": f"{sample.prompt} {sample.response}"}]

    def parse(self, text):
        return 1.0
"""

GUARDED = (
    HEAD
    + """
if __name__ == "__main__":
    main()
"""
)

GUARDED_RUBRIC = (
    HEAD
    + RUBRIC
    + """
if __name__ == "__main__":
    main(rubric=HandMade())
"""
)

HIDDEN_RUBRIC = (
    HEAD
    + """
if __name__ == "__main__":
"""
    + textwrap.indent(RUBRIC, "    ")
    + """
    main(rubric=HandMade())
"""
)

UNGUARDED = (
    HEAD
    + """
train(rc.open_judge(mode, endpoint, deadline=30.0, **options))
"""
)

UNGUARDED_MAIN = (
    HEAD
    + """
def run():
    train(rc.open_judge(mode, endpoint, deadline=30.0, **options))

run()
"""
)

INLINE = (
    HEAD
    + """
main()
"""
)

INLINE_RUBRIC = (
    HEAD
    + RUBRIC
    + """
main(rubric=HandMade())
"""
)

DAEMONIC = (
    HEAD
    + """
import multiprocessing

if __name__ == "__main__":
    process = multiprocessing.get_context("%s").Process(target=main, daemon=True)
    process.start()
    process.join(40)
    assert process.exitcode == 0, process.exitcode
"""
)

Run = Callable[..., tuple[str, str, int]]

#: How a program is run, and its text.
PROGRAMS: dict[str, tuple[Run, str]] = {
    "guarded": (run_script, GUARDED),
    "guarded, with a rubric": (run_script, GUARDED_RUBRIC),
    "guarded, with a rubric behind the guard": (run_script, HIDDEN_RUBRIC),
    "unguarded": (run_script, UNGUARDED),
    "unguarded, in a function": (run_script, UNGUARDED_MAIN),
    "package": (run_package, INLINE),
    "piped": (run_piped, GUARDED),
    "inline": (run_inline, INLINE),
    "inline, with a rubric": (run_inline, INLINE_RUBRIC),
    "daemonic, forked": (run_script, DAEMONIC % "fork"),
    "daemonic, spawned": (run_script, DAEMONIC % "spawn"),
}

each_mode_with_children = pytest.mark.parametrize("mode", ["process", "asyncio-child-process"])


@pytest.fixture
def run(server: HostileServer) -> Callable[[str, str], tuple[list[str], str, int]]:
    """What a program printed besides its own beginning, what it complained about, its exit code."""

    def run_one(program: str, mode: str) -> tuple[list[str], str, int]:
        how, source = PROGRAMS[program]
        output, errors, code = how(source, server.base_url, server.script(ok).marker, json.dumps(MODES[mode]))
        return [line.rstrip() for line in output.splitlines()], errors, code

    return run_one


Runner = Callable[[str, str], tuple[list[str], str, int]]


def refusal(printed: list[str]) -> str:
    """The one line in which a program told why no judge was opened."""
    lines = [line for line in printed if line != "a module"]
    assert len(lines) == 1, printed
    kind, _, message = lines[0].partition(": ")
    assert kind == "ConfigurationError"
    return message


@pytest.mark.parametrize("mode", ["sync", "asyncio-aiohttp", "asyncio-httpx"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_mode_without_children_works_in_every_program(program: str, mode: str, run: Runner) -> None:
    printed, errors, code = run(program, mode)
    assert [line for line in printed if line != "a module"] == ["ok", "ok", "training"], errors
    assert (errors, code) == ("", 0)


@each_mode_with_children
@pytest.mark.parametrize("program", ["guarded", "guarded, with a rubric", "package", "inline"])
def test_a_mode_with_children_works_where_they_can_be_started(program: str, mode: str, run: Runner) -> None:
    printed, errors, code = run(program, mode)
    assert [line for line in printed if line != "a module"] == ["ok", "ok", "training"], errors
    assert (errors, code) == ("", 0)


@each_mode_with_children
@pytest.mark.parametrize("program", ["unguarded", "unguarded, in a function"])
def test_a_script_without_the_guard_is_told_so_and_runs_once(program: str, mode: str, run: Runner) -> None:
    printed, errors, code = run(program, mode)
    assert printed == ["a module"]
    assert code == 1
    kind, _, message = errors.strip().splitlines()[-1].partition(": ")
    assert kind.endswith("ConfigurationError"), errors
    assert 'if __name__ == "__main__"' in message


@each_mode_with_children
def test_a_script_from_a_pipe_is_told_to_be_a_file(mode: str, run: Runner) -> None:
    printed, errors, code = run("piped", mode)
    assert "file" in refusal(printed)
    assert (errors, code) == ("", 0)


@each_mode_with_children
def test_a_rubric_of_a_notebook_is_told_to_move_into_a_module(mode: str, run: Runner) -> None:
    printed, errors, code = run("inline, with a rubric", mode)
    message = refusal(printed)
    assert "rubric" in message
    assert "module" in message
    assert (errors, code) == ("", 0)


@each_mode_with_children
@pytest.mark.parametrize("program", ["daemonic, forked", "daemonic, spawned"])
def test_a_daemonic_process_is_told_that_it_may_have_no_children(program: str, mode: str, run: Runner) -> None:
    printed, errors, code = run(program, mode)
    assert "daemonic" in refusal(printed)
    assert (errors, code) == ("", 0)


@each_mode_with_children
def test_a_rubric_that_the_child_cannot_find_is_named(mode: str, run: Runner) -> None:
    """By open_judge or by every verdict, and without a child's traceback in between."""
    printed, errors, code = run("guarded, with a rubric behind the guard", mode)
    told = [line for line in printed if line not in ("a module", "training")]
    assert [line.split()[0] for line in told] in (["failed", "failed"], ["ConfigurationError:"])
    assert all("HandMade" in line for line in told), told
    assert len(errors.splitlines()) <= 5, errors
    assert code == 0

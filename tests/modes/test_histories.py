"""What one call leaves to the next: given up, starved, broken, nested; as the server sees it.

A promise that holds for one call on a new judge must hold for every call on an old one, whatever came before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import rewardcore as rc
from tests.modes import leftovers
from tests.modes.conftest import ASYNCIO_MODES, CONCURRENT_MODES, MODES, Opener
from tests.modes.custom_rubrics import WAYS
from tests.modes.deadlines import hurried, runs_out, timed_out
from tests.modes.hostile_server import (
    HostileServer,
    Script,
    answers,
    breathing,
    eventually,
    held,
    ok,
    says,
    silent,
    together,
)
from tests.modes.scripts import ended, started

each_concurrent_mode = pytest.mark.parametrize("mode", CONCURRENT_MODES)
each_way_to_give_up = pytest.mark.parametrize("by", ["cancel", "deadline"])


def statuses(verdicts: list[rc.Verdict]) -> list[str]:
    return [verdict.status for verdict in verdicts]


def judged(judge: rc.Judge, samples: list[rc.Sample]) -> list[str]:
    """`judge.judge` that fails rather than hangs."""
    return statuses(judge.submit(samples).result(timeout=60))


def places(mode: str, number: int) -> dict[str, int]:
    """Options for that many requests at once; a worker process is a place too, and a dear one."""
    return {"max_concurrent": number, **({"workers": min(number, 4)} if mode == "process" else {})}


def warm_up(judge: rc.Judge, server: HostileServer, at_once: int = 2) -> None:
    """Whoever judges is up: from here on a deadline measures judging and nothing else."""
    script = server.script(together(at_once))
    eventually(lambda: set(judged(judge, script.samples(at_once))) == {"ok"}, "the judge is warm")


def give_up(judge: rc.Judge, script: Script, count: int, by: str) -> None:
    """A call whose requests are all on the wire when its caller stops waiting for them."""
    if by == "deadline":
        verdicts = timed_out(judge, script.samples(count), lambda _: script.requests >= count)
        assert statuses(verdicts) == ["timeout"] * count
        return
    pending = judge.submit(script.samples(count))
    script.saw(count)
    pending.cancel()


@contextmanager
def running(source: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A script that may hang, in vain: whatever it has started ends with it, and lets go of its output."""
    with started(source, *arguments) as process:
        try:
            yield process
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def run(source: str, *arguments: str) -> tuple[str, str, int]:
    with running(source, *arguments) as process:
        return ended(process)


# Asking again.


@each_way_to_give_up
def test_sync_judges_what_was_given_up_when_it_is_asked_for_again(
    by: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(held)
    with open_judge("sync") as judge:
        pending = judge.submit(script.samples(2))
        if by == "cancel":
            pending.cancel()
        else:
            with hurried(judge, 1.0):
                assert statuses(pending.result(timeout=60)) == ["timeout"] * 2
        script.release()
        assert judged(judge, script.samples(2)) == ["ok"] * 2


@pytest.mark.parametrize(("by", "number"), [("cancel", 2), ("cancel", 3), ("deadline", 2), ("deadline", 3)])
@each_concurrent_mode
def test_asking_again_shares_what_is_in_the_air_however_few_places_there_are(
    mode: str, by: str, number: int, open_judge: Opener, server: HostileServer
) -> None:
    """The late requests are in nobody's way: they are the very ones that are asked for."""
    script = server.script(held)
    with open_judge(mode, cache=True, **places(mode, number)) as judge:
        warm_up(judge, server)
        give_up(judge, script, 2, by)
        again = judge.submit(script.samples(2))
        script.release()
        assert statuses(again.result(timeout=60)) == ["ok"] * 2
    assert script.requests == 2


@each_way_to_give_up
@each_concurrent_mode
def test_asking_again_shares_what_is_in_the_air_without_a_cache(
    mode: str, by: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(held)
    with open_judge(mode, **places(mode, 60)) as judge:
        warm_up(judge, server)
        before = judge.stats.coalesced
        give_up(judge, script, 2, by)
        again = judge.submit(script.samples(2))
        eventually(lambda: judge.stats.coalesced == before + 2, "both samples wait for the late replies")
        script.release()
        assert statuses(again.result(timeout=60)) == ["ok"] * 2
    assert script.requests == 2


@each_way_to_give_up
@each_concurrent_mode
def test_what_was_pushed_out_is_sent_again_when_it_is_asked_for_again(
    mode: str, by: str, open_judge: Opener, server: HostileServer
) -> None:
    """Two others are in flight at once, so both late requests have had to go."""
    late, others = server.script(silent, silent, ok), server.script(together(2))
    with open_judge(mode, **places(mode, 2)) as judge:
        warm_up(judge, server)
        give_up(judge, late, 2, by)
        assert judged(judge, others.samples(4)) == ["ok"] * 4
        assert judged(judge, late.samples(2)) == ["ok"] * 2
    assert late.requests == 4


@pytest.mark.parametrize("number", [2, 3])
@each_concurrent_mode
def test_what_is_being_pushed_out_can_be_asked_for_again_at_that_very_moment(
    mode: str, number: int, open_judge: Opener, server: HostileServer
) -> None:
    late, others = server.script(held), server.script(ok)
    with open_judge(mode, **places(mode, number)) as judge:
        warm_up(judge, server)
        give_up(judge, late, 2, "cancel")
        pushing = judge.submit(others.samples(2))
        again = judge.submit(late.samples(2))
        late.release()
        assert statuses(pushing.result(timeout=60)) == ["ok"] * 2
        assert statuses(again.result(timeout=60)) == ["ok"] * 2


# The first use.

FIRST_USE = """
import asyncio, json, sys
import rewardcore as rc

async def impatient(judge, samples):
    try:
        await asyncio.wait_for(judge.ajudge(samples), 0.05)
    except TimeoutError:
        pass

def main(base_url, marker, mode, way):
    name, options = json.loads(mode)
    samples = [rc.Sample(f"[[{marker}]]", str(number)) for number in range(4)]
    endpoint = rc.Endpoint(base_url, "judge")
    with rc.open_judge(name, endpoint, cache=None, max_concurrent=2, deadline=60.0, **options) as judge:
        if way == "wait_for":
            asyncio.run(impatient(judge, samples))
        else:
            judge.submit(samples).cancel()
        print(*(verdict.status for verdict in judge.submit(samples).result(timeout=90)))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("mode", "way"), [*((mode, "cancel") for mode in MODES), *((mode, "wait_for") for mode in ASYNCIO_MODES)]
)
def test_a_first_call_given_up_while_the_client_is_imported_leaves_a_working_judge(
    mode: str, way: str, server: HostileServer
) -> None:
    """In a Python of its own: a client is imported once a process."""
    script = server.script(ok)
    output = run(FIRST_USE, server.base_url, script.marker, json.dumps(MODES[mode]), way)
    assert output == ("ok ok ok ok\n", "", 0)


def test_calls_that_are_cancelled_harm_none_of_the_calls_of_other_threads(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    """Twelve threads, five calls each, one of the five cancelled; each call has a sample that others ask for too."""
    script = server.script(breathing)

    def call_five_times(judge: rc.Judge, thread: int) -> list[list[str]]:
        kept = []
        for number in range(5):
            pending = judge.submit([script.sample(f"all.{number}"), script.sample(f"{thread}.{number}")])
            if number == thread % 5:
                pending.cancel()
            else:
                kept.append(statuses(pending.result(timeout=60)))
        return kept

    with open_judge(mode, max_concurrent=3, deadline=60.0) as judge, ThreadPoolExecutor(12) as pool:
        kept = list(pool.map(call_five_times, [judge] * 12, range(12)))
    assert kept == [[["ok", "ok"]] * 4] * 12


# Starving.

each_full_house = pytest.mark.parametrize(
    ("mode", "workers"),
    [*((mode, 2) for mode in CONCURRENT_MODES), ("process", 4)],
    ids=[*CONCURRENT_MODES, "process-with-idle-workers"],
)


@each_full_house
def test_a_call_that_waits_gets_the_places_of_one_that_is_cancelled_later(
    mode: str, workers: int, open_judge: Opener, server: HostileServer
) -> None:
    stuck, fine = server.script(silent), server.script(ok)
    options = {"workers": workers} if mode == "process" else {}
    with open_judge(mode, max_concurrent=2, **options) as judge:
        warm_up(judge, server)
        cancelled = judge.submit(stuck.samples(4))
        stuck.saw(2)
        waiting = judge.submit(fine.samples(3))
        cancelled.cancel()
        assert statuses(waiting.result(timeout=60)) == ["ok"] * 3
    assert stuck.requests == 2


@each_full_house
def test_a_call_that_waits_gets_the_places_of_one_that_runs_out_of_time(
    mode: str, workers: int, open_judge: Opener, server: HostileServer
) -> None:
    stuck, fine = server.script(silent), server.script(ok)
    options = {"workers": workers} if mode == "process" else {}
    with open_judge(mode, max_concurrent=2, **options) as judge:
        warm_up(judge, server)
        overdue = runs_out(judge, stuck, 4, on_the_wire=2)
        waiting = judge.submit(fine.samples(3))
        assert statuses(overdue.result(timeout=60)) == ["timeout"] * 4
        assert statuses(waiting.result(timeout=60)) == ["ok"] * 3


@pytest.mark.parametrize("mode", ["process", "asyncio-child-process"])
def test_cancelling_ends_no_process(mode: str, open_judge: Opener, server: HostileServer) -> None:
    """Call after call is cancelled with every place on the wire, and the same processes judge the next one."""
    before = leftovers.children()
    with open_judge(mode, **places(mode, 2)) as judge:
        warm_up(judge, server)
        at_first = leftovers.children() - before
        for _ in range(3):
            give_up(judge, server.script(silent), 2, "cancel")
            assert judged(judge, server.script(together(2)).samples(2)) == ["ok"] * 2
            assert leftovers.children() - before == at_first


# Breaking.


class BreaksOnce(rc.MemoryCache):
    """A cache of the caller's own: the first time that a method is called, it raises."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.breaks = {method}

    def get(self, *arguments: Any) -> Any:
        self._break("get")
        return super().get(*arguments)

    def put(self, *arguments: Any) -> None:
        self._break("put")
        super().put(*arguments)

    def _break(self, method: str) -> None:
        if method in self.breaks:
            self.breaks.discard(method)
            raise ZeroDivisionError(f"the caller's own {method} broke")


@pytest.mark.parametrize("method", ["get", "put"])
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "asyncio-child-process"])
def test_a_cache_that_raised_is_not_asked_again_and_costs_no_verdict(
    mode: str, method: str, open_judge: Opener, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    """An object of the caller's own cannot travel to a child, so one mode takes none."""
    script = server.script(ok)
    with open_judge(mode, cache=BreaksOnce(method)) as judge:
        for _ in range(2):
            assert judged(judge, script.samples(4)) == ["ok"] * 4
    assert script.requests == 8
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"own {method} broke; judging goes on without it" in told


POISONED = """
import asyncio, json, sys
import rewardcore as rc
from tests.modes.custom_rubrics import RaisesPastException

def main(base_url, fine, poison, mode, error):
    name, options = json.loads(mode)
    rubric = RaisesPastException({"SystemExit": SystemExit, "CancelledError": asyncio.CancelledError}[error])
    samples = [rc.Sample(f"[[{fine}]]", str(number)) for number in range(3)]
    samples[1:1] = [rc.Sample(f"[[{fine}]]", "poison"), rc.Sample(f"[[{poison}]]", "parsed")]
    endpoint = rc.Endpoint(base_url, "judge")
    with rc.open_judge(name, endpoint, rubric=rubric, cache=None, deadline=60.0, **options) as judge:
        for _ in range(2):
            verdicts = judge.submit(samples).result(timeout=90)
            print(json.dumps([(verdict.status, verdict.error) for verdict in verdicts]), flush=True)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize("error", ["SystemExit", "CancelledError"])
def test_a_rubric_that_raises_whatever_it_is_fails_that_sample_alone(
    mode: str, error: str, server: HostileServer
) -> None:
    """In a Python of its own: where it does get through, it takes the loop of every other judge with it."""
    fine, poison = server.script(ok), server.script(says("poison <score>7</score>"))
    arguments = (server.base_url, fine.marker, poison.marker, json.dumps(MODES[mode]), error)
    output, errors, code = run(POISONED, *arguments)
    assert code == 0
    assert all(line.startswith("rewardcore: 2 of 5 not judged: ") for line in errors.splitlines()), errors
    calls = [json.loads(line) for line in output.splitlines()]
    assert len(calls) == 2
    for verdicts in calls:
        assert [status for status, _ in verdicts] == ["ok", "failed", "failed", "ok", "ok"]
        assert "out of messages" in verdicts[1][1]
        assert "out of parse" in verdicts[2][1]
    assert poison.requests == 2


# Judges inside judges.

NESTED = """
import json, sys
import rewardcore as rc
from tests.modes.custom_rubrics import AsksAnotherJudge

def main(base_url, mode, *rows):
    name, options = json.loads(mode)
    samples = [rc.Sample(f"[[{row.partition(' ')[0]}]]", row.partition(" ")[2]) for row in rows]
    endpoint, rubric = rc.Endpoint(base_url, "judge"), AsksAnotherJudge(base_url)
    with rc.open_judge(name, endpoint, rubric=rubric, cache=None, deadline=60.0, **options) as judge:
        for verdict in judge.submit(samples).result(timeout=90):
            print(verdict.status, verdict.error)
        print(judge.stats.failed)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def test_a_rubric_that_asks_a_judge_fails_that_sample_at_once_and_alone(mode: str, server: HostileServer) -> None:
    """In a Python of its own: where a rubric does wait, the loop of every other judge waits with it."""
    fine = server.script(ok)
    scripts = {way: server.script(says(f"{way} <score>7</score>")) for way in WAYS}
    rows = [f"{fine.marker} 1", *(f"{fine.marker} {way}" for way in WAYS)]
    rows += [*(f"{scripts[way].marker} 2" for way in WAYS), f"{fine.marker} 3"]
    output, _, code = run(NESTED, server.base_url, json.dumps(MODES[mode]), *rows)
    assert code == 0
    first, *asking, last, kinds = output.splitlines()
    assert (first, last) == ("ok None", "ok None")
    whose = ["could not write this sample's messages:"] * len(WAYS) + ["'s parse raised"] * len(WAYS)
    for line, who in zip(asking, whose, strict=True):
        assert line.startswith("failed RubricFailed: the rubric")
        assert f"{who} AsksJudge: a judge was asked by what a judge is waiting for; judge in two steps" in line
    assert kinds == str({"RubricFailed": 2 * len(WAYS)})


class AsksInGet(rc.MemoryCache):
    judge: rc.Judge

    def get(self, key: bytes) -> Any:
        self.judge.submit([rc.Sample("p", "another")]).result(timeout=20.0)


def test_a_cache_that_asks_a_judge_is_told_so_and_not_asked_again(
    open_judge: Opener, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    with open_judge("asyncio-aiohttp", cache=(cache := AsksInGet())) as cache.judge:
        assert judged(cache.judge, server.script(ok).samples(2)) == ["ok"] * 2
    assert "raised AsksJudge: a judge was asked by what a judge is waiting for" in caplog.text


# What never went out.


def test_a_sample_that_the_breaker_kept_back_has_no_latency(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(answers(401))
    with open_judge(mode, max_concurrent=1) as judge:
        verdicts = judge.submit(script.samples(5)).result(timeout=60)
    assert statuses(verdicts) == ["failed"] * 5
    assert sorted(verdict.attempts for verdict in verdicts) == [0, 0, 0, 0, 1]
    assert {verdict.latency for verdict in verdicts if not verdict.attempts} == {0.0}
    assert all(0.0 <= verdict.latency < 30.0 for verdict in verdicts)


def test_a_sample_that_was_not_sent_by_the_deadline_has_no_latency(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(silent)
    with open_judge(mode, max_concurrent=1, deadline=0.5) as judge:
        verdicts = judge.submit(script.samples(5)).result(timeout=60)
    assert statuses(verdicts) == ["timeout"] * 5
    assert sum(verdict.attempts for verdict in verdicts) <= 1
    assert {verdict.latency for verdict in verdicts if not verdict.attempts} == {0.0}


def test_an_endpoint_that_takes_nothing_is_a_timeout_for_every_sample_alike(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    """Never sent, waiting for the next attempt, or with no time left for one: it is the deadline that ended it."""
    script, at_once = server.script(answers(429)), 1 if mode == "sync" else 2
    with open_judge(mode, max_concurrent=at_once) as judge:
        warm_up(judge, server, at_once)
        verdicts = timed_out(judge, script.samples(40), lambda found: any("429" in str(it.error) for it in found))
    assert statuses(verdicts) == ["timeout"] * 40
    tried = [verdict for verdict in verdicts if verdict.attempts]
    answered = [verdict for verdict in tried if "429" in str(verdict.error)]
    assert answered
    assert len(tried) - len(answered) <= at_once  # on the wire for the first time when the deadline came
    assert all("429" not in str(verdict.error) for verdict in verdicts if not verdict.attempts)

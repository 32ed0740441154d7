"""Endpoints that bear only so much, go away or have a storm: nothing is lost, and little is refused.

Over real sockets and in every mode, as the server counts it: how quick it is depends on the machine, and is measured in
virtual time (`bench.profiles`). What the server counted is printed (`pytest -s`) and is in the JUnit report.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import rewardcore as rc
from tests.modes.conftest import MODES, Opener
from tests.modes.hostile_server import (
    HostileServer,
    Limited,
    Storm,
    after_others,
    answers,
    breathing,
    eventually,
    together,
)

#: How many at once a mode asks: a worker process costs the most of a second to start, httpx 10 ms of CPU a request.
WIDE = {"sync": 1, "process": 6, "asyncio-httpx": 16}
Record = Callable[[str, object], None]


def width(mode: str, most: int = 60) -> int:
    return min(most, WIDE.get(mode, most))


@pytest.fixture
def own_server() -> Iterator[HostileServer]:
    """One that may go away."""
    with HostileServer() as server:
        yield server


def warm(judge: rc.Judge, server: HostileServer, mode: str, at_once: int) -> None:
    """Processes are started and clients imported; and how long that took is no latency any more."""
    assert statuses(judge.judge(server.script(together(at_once)).samples(at_once))) == {"ok"}
    if mode == "process":
        assert statuses(judge.judge(server.script(breathing).samples(160))) == {"ok"}


def statuses(verdicts: list[rc.Verdict]) -> set[str]:
    return {verdict.status for verdict in verdicts}


def options(mode: str, most: int = 60) -> dict[str, Any]:
    """With a deadline that no machine is too busy for."""
    places = width(mode, most)
    return {"max_concurrent": places, "deadline": 200.0} | ({"workers": places} if mode == "process" else {})


# Limits.


@pytest.mark.parametrize("status", [429, 503])
def test_an_endpoint_that_bears_only_so_many_a_second_judges_everything_and_refuses_few(
    mode: str, status: int, open_judge: Opener, server: HostileServer, record_property: Record
) -> None:
    """A seventh in the median; each second that is all used up costs a few probes."""
    count, places = 50 if mode == "sync" else 250, width(mode)
    limit = Limited(0.05, status, a_second=50)
    peak = judged(mode, limit, count, open_judge, server)
    report(mode, f"50 a second, {status}", limit, count, record_property)
    assert limit.refused <= places + 0.5 * count
    assert peak <= places


@pytest.mark.parametrize(("share", "seconds"), [(6, 0.08), (2, 0.1)], ids=["a sixth", "a half"])
def test_an_endpoint_that_bears_only_so_many_at_once_judges_everything_and_refuses_few(
    mode: str, share: int, seconds: float, open_judge: Opener, server: HostileServer, record_property: Record
) -> None:
    """Where a mode asks with 60 at once, 10 or 30 are borne; after the first burst it is known how many."""
    places = width(mode)
    limit = Limited(seconds, 503, at_once=max(1, places // share))
    count = round(2.0 / seconds * limit.at_once)
    peak = judged(mode, limit, count, open_judge, server)
    report(mode, f"{limit.at_once} at once", limit, count, record_property)
    assert limit.refused <= places + max(15, 0.1 * count)
    assert peak <= places


def judged(mode: str, limit: Limited, count: int, open_judge: Opener, server: HostileServer) -> int:
    """All of them; and how many of them were in flight at most."""
    with open_judge(mode, **options(mode)) as judge:
        warm(judge, server, mode, width(mode))
        script = server.script(limit)
        verdicts = judge.judge(script.samples(count))
    assert statuses(verdicts) == {"ok"}
    return script.peak_in_flight


def report(mode: str, what: str, limit: Limited, count: int, record_property: Record) -> None:
    record_property("refused", limit.refused)
    print(f"\n{mode}, {what}: {limit.refused} refused of {count}")


# Going away.


def test_an_endpoint_that_comes_up_late_judges_everything(
    mode: str, open_judge: Opener, own_server: HostileServer
) -> None:
    script = own_server.script(breathing)
    own_server.leave(1.5)
    endpoint = rc.Endpoint(own_server.base_url, "judge")
    with open_judge(mode, endpoint, **options(mode)) as judge:
        verdicts = judge.judge(script.samples(40))
        stats = judge.stats
    assert statuses(verdicts) == {"ok"}
    assert script.requests == 40, "nobody was there before"
    assert stats.retried <= 60 + 20


def test_an_endpoint_that_goes_away_for_a_while_is_asked_by_one_probe_at_a_time_and_judges_everything(
    mode: str, open_judge: Opener, own_server: HostileServer
) -> None:
    script, places, count = own_server.script(breathing), width(mode), 150
    endpoint = rc.Endpoint(own_server.base_url, "judge")
    with open_judge(mode, endpoint, **options(mode)) as judge:
        warm(judge, own_server, mode, places)
        before = judge.stats
        pending = judge.submit(script.samples(count))
        waiting = _in_a_thread(pending.result)
        script.saw(40)
        own_server.leave(2.0)
        # What was in the air is cut off, and each may find out on its own that nobody is there.
        eventually(lambda: judge.stats.in_flight <= 1, "the cut flights have landed")
        seen = [before]

        def is_back() -> bool:
            stats = judge.stats
            seen.extend([stats] if own_server.is_away else [])  # it still is, after the judge was looked at
            return not own_server.is_away

        eventually(is_back, "it is back")
        away = seen[-1]
        verdicts = waiting()
        after = judge.stats
    assert statuses(verdicts) == {"ok"}
    assert max(stats.in_flight for stats in seen) <= 1
    print(f"\n{mode}: {away.retried - before.retried} retried while away, {after.retried - before.retried} in all")
    assert away.retried - before.retried <= 2 * places + 12
    assert after.requests - before.requests <= count + 4 * places + 24


def _in_a_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Sync begins when somebody waits for it."""
    executor = ThreadPoolExecutor(1)
    future = executor.submit(work)
    executor.shutdown(wait=False)
    return future.result


# Storms.


STORMS = [(500, 0.0, 60), (503, 0.3, 8), (502, 0.3, 60), (503, 0.0, 60), (500, 0.0, 8)]
#: The pace is the same in every mode: all of them meet two storms, and one of them every one.
EVERY_STORM = "asyncio-aiohttp"


@pytest.mark.parametrize(
    ("mode", "status", "slow", "most"),
    [(mode, *storm) for mode in MODES for storm in (STORMS if mode == EVERY_STORM else STORMS[:2])],
)
def test_a_storm_is_met_by_few_requests_few_of_them_again_and_after_it_everything_is_judged(
    mode: str, status: int, slow: float, most: int, open_judge: Opener, server: HostileServer
) -> None:
    storm, places = Storm(100, 2.0, status, slow), width(mode, most)
    with open_judge(mode, **options(mode, most)) as judge:
        warm(judge, server, mode, places)
        verdicts = judge.judge(server.script(storm).samples(240 if mode == "sync" else 400))
    assert statuses(verdicts) == {"ok"}
    print(f"\n{mode}, {status} after {slow} s, {most}: {storm.met} met the storm, {storm.again} of them again")
    assert storm.met <= 2 * places + 40
    assert storm.again <= 5 + 0.1 * storm.met, "of the row of six that shows the storm, all but one"


# What is told of it.


def test_stats_tell_how_fast_is_asked_and_why(mode: str, open_judge: Opener, server: HostileServer) -> None:
    """Also where a child process does the asking; and after `close` as well."""
    limit = Limited(0.02, 503, at_once=max(1, width(mode) // 8))
    with open_judge(mode, **options(mode)) as judge:
        assert statuses(judge.judge(server.script(limit).samples(3 * width(mode)))) == {"ok"}
        pace = judge.stats.pace
        assert pickle.loads(pickle.dumps(judge.stats)).pace is not None
    assert pace is not None
    assert judge.stats.pace is not None
    assert pace.state in ("window", "rate", "probing")
    assert pace.allowed
    assert len(pace.changes) <= 10
    assert str(pace).splitlines()[0] == f"{pace.state}: {pace.allowed}"
    if limit.refused >= 40:
        assert any("refused" in change.reason for change in pace.changes)


# One that is at fault.


@pytest.mark.parametrize("status", [500, 503])
def test_one_sample_that_always_fails_is_given_up_after_a_few_attempts_and_the_others_are_judged(
    mode: str, status: int, open_judge: Opener, server: HostileServer
) -> None:
    """Others get through in between: had all been answered before, nobody could tell it from an outage."""
    count, fine = max(40, 3 * width(mode)), server.script(breathing)
    fails = answers(status) if mode == "sync" else after_others(answers(status), fine, count)
    bad, samples = server.script(fails), fine.samples(count)
    samples.insert(3, bad.sample())
    with open_judge(mode, **options(mode)) as judge:
        verdicts = judge.judge(samples)
    assert (verdicts[3].status, str(status) in str(verdicts[3].error)) == ("failed", True)
    assert statuses(verdicts[:3] + verdicts[4:]) == {"ok"}
    assert bad.requests <= 10
    assert fine.requests == count

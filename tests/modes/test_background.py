"""The background loop: many threads, running loops, second loops, streams, cancelled awaits and forks."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

import rewardcore as rc
from tests.modes.conftest import CONCURRENT_MODES, Opener
from tests.modes.hostile_server import HostileServer, breathing, eventually, held, ok, silent
from tests.modes.scripts import run_script


def test_calls_from_many_threads_at_once(shared_judge: rc.Judge, server: HostileServer) -> None:
    script, results = server.script(breathing), {}

    def call(number: int) -> None:
        results[number] = shared_judge.judge(script.sample(f"{number}.{n}") for n in range(4))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(8))
    assert {verdict.status for verdicts in results.values() for verdict in verdicts} == {"ok"}
    assert script.requests == 32


async def test_judge_works_inside_a_running_loop(shared_judge: rc.Judge, server: HostileServer) -> None:
    assert [verdict.status for verdict in shared_judge.judge(server.script(ok).samples(2))] == ["ok", "ok"]


def test_a_second_event_loop_works_as_the_first(shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(ok)
    for number in range(2):
        verdicts = asyncio.run(shared_judge.ajudge([script.sample(str(number))]))
        assert [verdict.status for verdict in verdicts] == ["ok"]
    assert script.requests == 2


async def test_ajudge_gives_one_verdict_per_sample_in_input_order(
    shared_judge: rc.Judge, server: HostileServer
) -> None:
    one, two = server.script(breathing), server.script(ok)
    results = await asyncio.gather(shared_judge.ajudge(one.samples(3)), shared_judge.ajudge(two.samples(4)))
    assert [[verdict.status for verdict in verdicts] for verdicts in results] == [["ok"] * 3, ["ok"] * 4]
    assert await shared_judge.ajudge([]) == []


async def test_a_cancelled_ajudge_stops_asking_and_touches_nobody(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script, fine = server.script(held), server.script(ok)
    on_the_wire = 1 if mode == "sync" else 2
    with open_judge(mode, max_concurrent=2) as judge:
        task = asyncio.ensure_future(judge.ajudge(script.samples(10)))
        await asyncio.to_thread(script.saw, on_the_wire)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other = asyncio.ensure_future(judge.ajudge(fine.samples(2)))
        assert judge.stats.requests >= on_the_wire  # answered only after the cancellation has reached whoever judges
        script.release()
        assert [verdict.status for verdict in await other] == ["ok", "ok"]
    assert script.requests == on_the_wire


async def test_a_batch_can_be_awaited_while_the_loop_goes_on(shared_judge: rc.Judge, server: HostileServer) -> None:
    """Again, too, and by several at once."""
    script = server.script(held)
    pending = shared_judge.submit(script.samples(2))

    async def release() -> None:
        await asyncio.to_thread(script.saw, 1)
        script.release()

    one, other, _ = await asyncio.gather(pending, pending, release())
    assert [verdict.status for verdict in one] == ["ok", "ok"]
    assert one == other == await pending == pending.result()
    assert pending.waited == 0.0


async def test_whoever_awaits_a_batch_that_is_cancelled_is_told_so(
    shared_judge: rc.Judge, server: HostileServer
) -> None:
    script = server.script(held)
    pending, other = shared_judge.submit(script.samples(2)), shared_judge.submit(script.samples(2))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pending, 0.05)
    assert pending.done()
    with pytest.raises(CancelledError):
        await pending
    script.release()
    assert [verdict.status for verdict in await other] == ["ok", "ok"]


# Streams.


async def test_astream_yields_every_index_once(shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(ok)
    seen = [index async for index, verdict in shared_judge.astream(script.samples(200)) if verdict.status == "ok"]
    assert sorted(seen) == list(range(200))
    assert [pair async for pair in shared_judge.astream([])] == []


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
async def test_astream_yields_replies_as_they_arrive(shared_judge: rc.Judge, server: HostileServer) -> None:
    slow, fast = server.script(held), server.script(ok)
    stream = shared_judge.astream([slow.sample(), fast.sample()])
    assert (await anext(stream))[0] == 1
    slow.release()
    assert [index async for index, _ in stream] == [0]


async def test_astream_takes_a_bounded_number_of_samples_ahead(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script, taken = server.script(ok), 0

    def endless() -> Iterator[rc.Sample]:
        nonlocal taken
        for number in itertools.count():
            taken = number + 1
            yield script.sample(str(number))

    with open_judge(mode, max_concurrent=4) as judge:
        stream, most_ahead = judge.astream(endless()), 0
        for received in range(1, 200):
            await anext(stream)
            most_ahead = max(most_ahead, taken - received)
        await stream.aclose()
    assert most_ahead <= 4 * 16


async def test_an_early_break_leaves_nothing(mode: str, open_judge: Opener, server: HostileServer) -> None:
    """The generator is finalised when the judge is long closed, and even that is quiet."""
    fine, stuck = server.script(ok), server.script(silent)
    with open_judge(mode, max_concurrent=4) as judge:
        async for _ in judge.astream(itertools.chain(fine.samples(3), map(stuck.sample, map(str, itertools.count())))):
            break
    for _ in range(3):
        await asyncio.sleep(0)
    eventually(lambda: stuck.in_flight == 0, "the connections are gone")


async def test_a_stream_whose_judge_is_closed_says_so(mode: str, open_judge: Opener, server: HostileServer) -> None:
    script = server.script(ok)
    judge = open_judge(mode)
    stream = judge.astream(map(script.sample, map(str, itertools.count())))
    await anext(stream)
    judge.close()
    with pytest.raises(rc.RewardcoreError, match="closed; open another"):
        async for _ in stream:
            pass


async def test_astream_of_a_str_is_a_clear_error(shared_judge: rc.Judge) -> None:
    with pytest.raises(rc.ConfigurationError, match="samples"):
        await anext(shared_judge.astream("text"))  # type: ignore[arg-type]


def test_a_consumer_whose_loop_is_gone_harms_nobody(open_judge: Opener, server: HostileServer) -> None:
    script, fine = server.script(held), server.script(ok)

    async def leave(judge: rc.Judge) -> object:
        stream = judge.astream([fine.sample("first"), *script.samples(3)])
        await anext(stream)
        return stream

    with open_judge("asyncio-aiohttp") as judge:
        loop = asyncio.new_event_loop()
        stream = loop.run_until_complete(leave(judge))
        loop.close()
        script.saw(3)
        script.release()
        eventually(lambda: judge.stats.in_flight == 0, "the replies are in")
        assert [verdict.status for verdict in judge.judge(fine.samples(3))] == ["ok"] * 3
        del stream


def test_without_uvloop_the_loop_leaves_no_resolver_threads(
    open_judge: Opener, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    before = set(threading.enumerate())
    endpoint = rc.Endpoint(f"http://localhost:{server.port}/v1", "judge")
    with open_judge("asyncio-aiohttp", endpoint) as judge:
        assert [verdict.status for verdict in judge.judge(server.script(ok).samples(3))] == ["ok"] * 3
    assert set(threading.enumerate()) <= before


# Forks.

FORK = """
import gc, os, sys
import rewardcore as rc

def statuses(verdicts):
    return [verdict.status for verdict in verdicts]

def main(base_url, marker, mode, exit_by, uvloop):
    if uvloop == "no":
        sys.modules["uvloop"] = None
    options = {"sync": {}, "process": {"workers": 1}, "thread": {}, "child": {"background": "process"}}[mode]
    endpoint = rc.Endpoint(base_url, "judge")
    name = mode if mode in ("sync", "process") else "asyncio"
    judge = rc.open_judge(name, endpoint, cache=None, deadline=60.0, **options)
    samples = [rc.Sample(f"[[{marker}]]", str(number)) for number in range(6)]
    assert statuses(judge.judge(samples)) == ["ok"] * 6
    pid = os.fork()
    if pid == 0:
        if exit_by == "unused":
            del judge
            gc.collect()
        else:
            assert judge.stats.requests == 0
            assert statuses(judge.judge(samples)) == ["ok"] * 6
            judge.close()
        if exit_by == "_exit" or (exit_by == "unused" and uvloop == "yes"):
            os._exit(0)  # libuv joins the parent's resolver threads at a regular exit, unless it has started some here
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    before = judge.stats.requests
    assert statuses(judge.judge(samples)) == ["ok"] * 6
    assert judge.stats.requests == before + 6
    judge.close()
    from tests.modes import leftovers
    left = leftovers.everything()
    assert not any(left.values()), left
    print("fine")

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("mode", "exit_by", "uvloop"),
    [
        ("thread", "_exit", "yes"),
        ("thread", "sys.exit", "yes"),
        ("thread", "unused", "yes"),
        ("thread", "sys.exit", "no"),
        ("thread", "unused", "no"),
        ("sync", "sys.exit", "yes"),
        ("process", "sys.exit", "yes"),
        ("child", "sys.exit", "yes"),
        ("child", "unused", "yes"),
    ],
)
def test_after_a_fork_both_sides_judge_and_the_parents_connections_still_work(
    mode: str, exit_by: str, uvloop: str, server: HostileServer
) -> None:
    script = server.script(ok)
    connections = server.connections
    run = run_script(FORK, server.base_url, script.marker, mode, exit_by, uvloop)
    assert run == ("fine\n", "", 0)
    assert script.requests == (12 if exit_by == "unused" else 18)
    assert server.connections > connections

"""`judge.stream`: verdicts as they arrive, for a plain caller, and whatever ends such a loop early."""

from __future__ import annotations

import gc
import itertools
import json
import signal
from collections.abc import Iterator

import pytest

import rewardcore as rc
from tests.modes.conftest import CONCURRENT_MODES, MODES, Opener
from tests.modes.deadlines import hurried
from tests.modes.hostile_server import HostileServer, Script, answers, eventually, held, ok, silent
from tests.modes.scripts import ended, run_script, started


def endless(script: Script) -> Iterator[rc.Sample]:
    return map(script.sample, map(str, itertools.count()))


def judged(judge: rc.Judge, script: Script) -> list[str]:
    """As many as there are places; fails rather than hangs."""
    return [verdict.status for verdict in judge.submit(script.samples(2)).result(timeout=60)]


def test_stream_yields_every_index_once(shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(ok)
    seen = [index for index, verdict in shared_judge.stream(script.samples(200)) if verdict.status == "ok"]
    assert sorted(seen) == list(range(200))
    assert list(shared_judge.stream([])) == []


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_stream_yields_replies_as_they_arrive_and_counts_the_wait(
    shared_judge: rc.Judge, server: HostileServer
) -> None:
    slow, fast = server.script(held), server.script(ok)
    blocked = shared_judge.stats.blocked
    stream = shared_judge.stream([slow.sample(), fast.sample()])
    assert next(stream)[0] == 1
    assert shared_judge.stats.blocked > blocked
    slow.release()
    assert [index for index, _ in stream] == [0]


def test_stream_takes_a_bounded_number_of_samples_ahead(mode: str, open_judge: Opener, server: HostileServer) -> None:
    script, taken = server.script(ok), 0

    def counted() -> Iterator[rc.Sample]:
        nonlocal taken
        for sample in endless(script):
            taken += 1
            yield sample

    with open_judge(mode, max_concurrent=4) as judge:
        stream, most_ahead = judge.stream(counted()), 0
        for received in range(1, 200):
            next(stream)
            most_ahead = max(most_ahead, taken - received)
        stream.close()
    assert most_ahead <= (0 if mode == "sync" else 4 * 16)


def test_sync_asks_nothing_while_the_consumer_works(open_judge: Opener, server: HostileServer) -> None:
    script = server.script(ok)
    with open_judge("sync") as judge:
        for received, _ in enumerate(judge.stream(endless(script)), start=1):
            assert script.requests == judge.stats.requests == received
            if received == 3:
                break
        assert judge.judge([script.sample("another call")])[0].status == "ok"
    assert script.requests == 4


def _break(stream: Iterator[object]) -> None:
    for _ in stream:
        break


def _close(stream: Iterator[object]) -> None:
    next(stream)
    stream.close()  # type: ignore[attr-defined]


def _forget_in_a_cycle(stream: Iterator[object]) -> None:
    next(stream)
    cycle: list[object] = [stream]
    cycle.append(cycle)


@pytest.mark.parametrize("leave", [_break, _close, _forget_in_a_cycle])
def test_a_stream_that_is_left_gives_up_its_places_and_the_judge_goes_on(
    mode: str, leave: object, open_judge: Opener, server: HostileServer
) -> None:
    first, stuck, fine = server.script(ok), server.script(silent), server.script(ok)
    options = {"workers": 2} if mode == "process" else {}
    with open_judge(mode, max_concurrent=2, **options) as judge:
        leave(judge.stream(itertools.chain(first.samples(1), endless(stuck))))  # type: ignore[operator]
        gc.collect()
        assert judged(judge, fine) == ["ok", "ok"]
    eventually(lambda: stuck.in_flight == 0, "the connections are gone")


def test_samples_that_raise_end_the_stream_and_the_judge_goes_on(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    stuck, fine = server.script(silent), server.script(ok)

    def broken() -> Iterator[rc.Sample]:
        yield from stuck.samples(40)
        raise ZeroDivisionError("the caller's own")

    with open_judge(mode, max_concurrent=2, deadline=30.0) as judge:
        if mode == "sync":  # it asks for the first before it looks for a second
            with hurried(judge, 1.0):
                assert next(judge.stream(broken()))[1].status == "timeout"
        else:
            with pytest.raises(ZeroDivisionError, match="the caller's own"):
                next(judge.stream(broken()))
        assert judged(judge, fine) == ["ok", "ok"]


def test_a_stream_whose_judge_is_closed_says_so(mode: str, open_judge: Opener, server: HostileServer) -> None:
    judge = open_judge(mode)
    stream = judge.stream(endless(server.script(ok)))
    next(stream)
    judge.close()
    with pytest.raises(rc.RewardcoreError, match="closed; open another"):
        list(stream)
    with pytest.raises(rc.RewardcoreError, match="closed; open another"):
        next(judge.stream([]))


def test_what_ends_a_stream_ends_all_of_it_and_no_later_one(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    denied, fine = server.script(answers(401)), server.script(ok)
    with open_judge(mode, max_concurrent=1) as judge:
        stream = judge.stream(denied.samples(100))  # more than are on their way at once
        assert next(stream)[1].status == "failed"
        assert [verdict.status for _, verdict in judge.stream(fine.samples(3))] == ["ok"] * 3
        assert {verdict.status for _, verdict in stream} == {"failed"}
    assert denied.requests == 1


def test_stream_of_a_str_is_a_clear_error(shared_judge: rc.Judge) -> None:
    with pytest.raises(rc.ConfigurationError, match="samples"):
        next(shared_judge.stream("text"))  # type: ignore[arg-type]


INTERRUPTED = """
import json, sys
import rewardcore as rc

def main(base_url, stuck, fine, mode):
    name, options = json.loads(mode)
    endpoint = rc.Endpoint(base_url, "judge")
    with rc.open_judge(name, endpoint, cache=None, max_concurrent=2, deadline=30.0, **options) as judge:
        samples = [rc.Sample(f"[[{fine}]]", "first"), *(rc.Sample(f"[[{stuck}]]", str(n)) for n in range(40))]
        try:
            for index, verdict in judge.stream(samples):
                print(index, verdict.status, flush=True)
        except KeyboardInterrupt:
            verdicts = judge.submit([rc.Sample(f"[[{fine}]]", str(n)) for n in range(2)]).result(timeout=40)
            print("interrupted", *(verdict.status for verdict in verdicts))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def test_ctrl_c_ends_a_stream_that_waits_and_the_judge_goes_on(mode: str, server: HostileServer) -> None:
    stuck, fine = server.script(silent), server.script(ok)
    with started(INTERRUPTED, server.base_url, stuck.marker, fine.marker, json.dumps(MODES[mode])) as process:
        stuck.saw(1)
        assert process.stdout is not None
        assert process.stdout.readline() == "0 ok\n"
        process.send_signal(signal.SIGINT)
        assert ended(process) == ("interrupted ok ok\n", "", 0)


FORKED = """
import os, sys
import rewardcore as rc

def main(base_url, marker):
    judge = rc.open_judge("asyncio", rc.Endpoint(base_url, "judge"), cache=None)
    stream = judge.stream(rc.Sample(f"[[{marker}]]", str(number)) for number in range(1000))
    next(stream)
    pid = os.fork()
    if pid == 0:
        try:
            for _ in stream:
                pass
        except rc.RewardcoreError as error:
            print(str(error).replace(str(os.getppid()), "PARENT"), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(1 + sum(1 for _ in stream))
    judge.close()

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def test_a_stream_stays_in_the_process_where_it_began(server: HostileServer) -> None:
    said = "this stream began in process PARENT; begin one in this process\n"
    assert run_script(FORKED, server.base_url, server.script(ok).marker) == (f"{said}1000\n", "", 0)

"""Every guarantee of the judging contract, by name and in every mode, as the server sees it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

import rewardcore as rc
from rewardcore.clock import SYSTEM_CLOCK
from tests.modes import leftovers
from tests.modes.conftest import CONCURRENT_MODES, MODES, Opener
from tests.modes.custom_rubrics import RaisesInMessages, RaisesInParse, SeesTheTruth
from tests.modes.deadlines import hurried, timed_out
from tests.modes.hostile_server import (
    Exchange,
    HostileServer,
    Script,
    answers,
    breathing,
    completion,
    eventually,
    held,
    ok,
    says,
    silent,
    together,
)


def statuses(verdicts: list[rc.Verdict]) -> list[str]:
    return [verdict.status for verdict in verdicts]


async def echoing(exchange: Exchange) -> None:
    """The response's own last digit as its score."""
    digit = int(exchange.body.decode().split("<response>\\n")[1].split("\\n")[0]) % 10
    await exchange.answer(200, completion(f"<score>{1 + digit % 10}</score>"))


@pytest.fixture
def alarm(monkeypatch: pytest.MonkeyPatch) -> TimeoutError:
    """What the handler of a signal raises in whoever waits for a batch, as verl's does, and pytest-timeout's."""
    error = TimeoutError("an alarm of the caller's")

    class Rung(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise error

    monkeypatch.setattr(SYSTEM_CLOCK, "event", Rung)
    return error


# Verdicts.


def test_exactly_one_verdict_per_sample_in_input_order(shared_judge: rc.Judge, server: HostileServer) -> None:
    verdicts = shared_judge.judge(server.script(echoing).samples(50))
    assert [verdict.score for verdict in verdicts] == [(number % 10) / 9 for number in range(50)]


def test_one_failing_sample_never_touches_another(shared_judge: rc.Judge, server: HostileServer) -> None:
    fine, bad, silly = server.script(ok), server.script(answers(400)), server.script(says("no score at all"))
    samples = fine.samples(8)
    samples[3:3] = [bad.sample(), silly.sample(), rc.Sample(f"[[{fine.marker}]]", "lone surrogate \ud800")]
    verdicts = shared_judge.judge(samples)
    assert statuses(verdicts) == ["ok"] * 3 + ["failed", "unparsed", "failed"] + ["ok"] * 5
    assert "400" in str(verdicts[3].error)
    assert all((verdict.score is None) == (verdict.status != "ok") for verdict in verdicts)


@pytest.mark.parametrize("rubric", [RaisesInMessages(), RaisesInParse()], ids=["messages", "parse"])
def test_a_rubric_that_raises_fails_that_sample_alone(
    mode: str, rubric: rc.rubrics.Rubric, open_judge: Opener, server: HostileServer
) -> None:
    fine, poison = server.script(ok), server.script(says("poison <score>7</score>"))
    options = {"workers": 1} if mode == "process" else {}
    with open_judge(mode, rubric=rubric, **options) as judge:
        verdicts = judge.judge([fine.sample("1"), poison.sample("poison"), fine.sample("2")])
    assert statuses(verdicts) == ["ok", "failed", "ok"]
    assert str(verdicts[1].error).startswith("RubricFailed: ")


def test_an_empty_list_has_no_verdicts_and_sends_nothing(shared_judge: rc.Judge) -> None:
    before = shared_judge.stats.requests
    assert shared_judge.judge([]) == []
    assert shared_judge.submit(iter(())).result(timeout=0) == []
    assert shared_judge.stats.requests == before


def test_samples_may_be_a_generator(shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(ok)
    assert statuses(shared_judge.judge(script.sample(str(number)) for number in range(3))) == ["ok"] * 3


@pytest.mark.parametrize(
    "samples",
    ["a text", b"bytes", rc.Sample("p", "r"), ["a text"], [rc.Sample("p", "r"), {"prompt": "p"}], 7, None],
    ids=["str", "bytes", "one sample", "list of str", "list with a dict", "int", "None"],
)
def test_what_is_no_list_of_samples_is_a_clear_error(shared_judge: rc.Judge, samples: object) -> None:
    with pytest.raises(rc.ConfigurationError, match="samples"):
        shared_judge.judge(samples)  # type: ignore[arg-type]


# Limits.


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_never_more_than_max_concurrent_in_flight(
    mode: str, most: int, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(breathing)
    options = {"workers": 3} if mode == "process" else {}
    with open_judge(mode, max_concurrent=most, **options) as judge:
        pending = [judge.submit(script.samples(number)) for number in (6, 12)]
        for batch in pending:
            assert set(statuses(batch.result())) == {"ok"}
        assert judge.stats.peak_in_flight <= most
    assert script.peak_in_flight <= most


def test_sync_sends_one_request_at_a_time_from_however_many_threads(open_judge: Opener, server: HostileServer) -> None:
    script = server.script(breathing)
    with open_judge("sync") as judge:
        threads = [threading.Thread(target=judge.judge, args=([script.sample(str(n))],)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (script.requests, script.peak_in_flight) == (5, 1)


def test_max_concurrent_auto_judges_everything(open_judge: Opener, server: HostileServer) -> None:
    script = server.script(breathing)
    with open_judge("asyncio-aiohttp", max_concurrent="auto") as judge:
        assert set(statuses(judge.judge(script.samples(200)))) == {"ok"}


# The deadline.


def test_an_endpoint_that_never_answers_ends_with_the_deadline(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(silent)
    with open_judge(mode, deadline=0.5) as judge:
        verdicts = judge.judge(script.samples(5))
        assert statuses(verdicts) == ["timeout"] * 5
        assert judge.stats.failed == {"DeadlinePassed": 5}
    assert all(str(verdict.error).startswith("DeadlinePassed: ") for verdict in verdicts)


def test_a_request_that_stalls_is_given_up_and_asked_again(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    fine, stalls = server.script(ok), server.script(silent, ok)
    with open_judge(mode, request_timeout=1.0) as judge:
        verdicts = judge.judge([*fine.samples(10), stalls.sample(), *fine.samples(20)[10:]])
        eventually(lambda: not judge.stats.in_flight, "the request that was given up has ended")
        retried = judge.stats.retried
    assert statuses(verdicts) == ["ok"] * 21
    assert retried == sum(verdict.attempts - 1 for verdict in verdicts)
    assert verdicts[10].attempts == stalls.requests >= 2


def test_one_stall_in_a_hundred_is_noticed_without_being_told(open_judge: Opener, server: HostileServer) -> None:
    fine, stalls = server.script(ok), server.script(silent, ok)
    samples = fine.samples(99)
    samples.insert(30, stalls.sample())
    with open_judge("asyncio-aiohttp", deadline=60.0) as judge:
        assert statuses(judge.judge(samples)) == ["ok"] * 100


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_a_batch_ends_with_its_deadline_even_if_nobody_waits_for_it(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    with open_judge(mode, deadline=0.5) as judge:
        pending = judge.submit(server.script(silent).samples(3))
        eventually(pending.done, "the batch is over", seconds=20.0)
        assert statuses(pending.result(timeout=0)) == ["timeout"] * 3


def test_the_deadline_is_one_calls_own(mode: str, open_judge: Opener, server: HostileServer) -> None:
    """A batch that nobody has asked for yet takes nothing from the one that is waited for."""
    stuck, fine = server.script(silent), server.script(ok)
    with open_judge(mode) as judge:
        with hurried(judge, 1.0):
            unasked = judge.submit(stuck.samples(1))
        assert statuses(judge.submit(fine.samples(2)).result()) == ["ok", "ok"]
        with hurried(judge, 1.0):
            assert statuses(unasked.result()) == ["timeout"]


def time_out_on_the_wire(judge: rc.Judge, script: Script, server: HostileServer) -> None:
    """Two samples, both of them on the wire when their deadline comes."""
    assert statuses(judge.judge(server.script(together(2)).samples(2))) == ["ok"] * 2
    verdicts = timed_out(judge, script.samples(2), lambda _: script.requests >= 2)
    assert statuses(verdicts) == ["timeout"] * 2
    script.saw(2)


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_replies_that_come_late_go_to_the_cache_while_the_judge_is_open(
    mode: str, open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    script = server.script(held)
    with open_judge(mode, cache=tmp_path / "cache.sqlite") as judge:
        time_out_on_the_wire(judge, script, server)
        script.release()
        eventually(lambda: judge.stats.in_flight == 0, "the late replies are in")
        again = judge.judge(script.samples(2))
    assert [(verdict.status, verdict.cached) for verdict in again] == [("ok", True)] * 2
    assert script.requests == 2


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_late_requests_do_not_take_the_places_of_the_next_call(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    """Every place is held by a request that never ends and that nobody waits for any more."""
    stuck, fine = server.script(silent), server.script(ok)
    with open_judge(mode, max_concurrent=2) as judge:
        time_out_on_the_wire(judge, stuck, server)
        assert statuses(judge.judge(fine.samples(3))) == ["ok"] * 3


# Submit and wait.


def test_a_result_that_is_not_ready_raises_timeout_error_and_can_be_asked_for_again(
    shared_judge: rc.Judge, server: HostileServer
) -> None:
    script = server.script(held)
    pending = shared_judge.submit(script.samples(2))
    assert not pending.done()
    with pytest.raises(TimeoutError, match="goes on"):
        pending.result(timeout=0)
    script.release()
    first = pending.result(timeout=30)
    assert statuses(first) == ["ok", "ok"]
    assert pending.result(timeout=0) == first
    assert pending.done()
    assert script.requests == 2


@pytest.mark.parametrize(
    "wait", [rc.Pending.result, lambda pending: pending.result(timeout=30)], ids=["for ever", "30 s"]
)
def test_a_time_out_that_is_the_callers_own_keeps_its_words_and_ends_the_batch(
    shared_judge: rc.Judge, server: HostileServer, alarm: TimeoutError, wait: Callable[[rc.Pending], object]
) -> None:
    script = server.script(held)
    pending = shared_judge.submit(script.samples(2))
    with pytest.raises(TimeoutError) as caught:
        wait(pending)
    assert caught.value is alarm
    with pytest.raises(CancelledError):
        pending.result()
    script.release()


@pytest.mark.parametrize("timeout", ["30", float("nan"), [30]])
def test_a_timeout_that_is_no_time_is_named_and_the_batch_goes_on(
    shared_judge: rc.Judge, server: HostileServer, timeout: object
) -> None:
    pending = shared_judge.submit(server.script(ok).samples(2))
    with pytest.raises(rc.ConfigurationError, match="timeout must be seconds, or None to wait for ever, not"):
        pending.result(timeout=timeout)  # type: ignore[arg-type]
    assert statuses(pending.result()) == ["ok", "ok"]


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400], ids=["inf", "1e300", "10**400"])
def test_a_timeout_of_any_length_is_waited_for(shared_judge: rc.Judge, server: HostileServer, timeout: float) -> None:
    assert statuses(shared_judge.submit(server.script(ok).samples(2)).result(timeout=timeout)) == ["ok", "ok"]


def test_watching_a_batch_hides_no_time_out_of_the_callers(
    shared_judge: rc.Judge, server: HostileServer, alarm: TimeoutError
) -> None:
    script = server.script(held)
    with pytest.raises(TimeoutError) as caught:
        shared_judge.judge(script.samples(2), progress=lambda progress: None)
    assert caught.value is alarm
    script.release()


def test_waited_and_blocked_say_how_long_the_caller_was_held_up(shared_judge: rc.Judge, server: HostileServer) -> None:
    before = shared_judge.stats.blocked
    pending = shared_judge.submit(server.script(breathing).samples(2))
    assert pending.waited == 0.0
    pending.result()
    waited = pending.waited
    assert waited > 0.0
    assert shared_judge.stats.blocked == pytest.approx(before + waited)
    pending.result()
    assert pending.waited == waited


def test_a_cancelled_batch_touches_no_other(shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(held)
    cancelled, kept = shared_judge.submit(script.samples(2)), shared_judge.submit(script.samples(2))
    cancelled.cancel()
    cancelled.cancel()
    script.release()
    assert statuses(kept.result()) == ["ok", "ok"]
    assert cancelled.done()


def test_stats_add_up(mode: str, open_judge: Opener, server: HostileServer) -> None:
    fine, bad = server.script(ok), server.script(answers(400))
    with open_judge(mode, cache=True) as judge:
        judge.judge(fine.samples(3))
        verdicts = judge.judge([*fine.samples(3), bad.sample()])
        stats = judge.stats
    assert judge.stats.requests == stats.requests == 4 == fine.requests + bad.requests
    assert stats.cached == 3
    assert stats.failed == {"Rejected": 1}
    assert (stats.prompt_tokens, stats.completion_tokens) == (30, 15)
    assert (stats.in_flight, stats.retried, stats.coalesced) == (0, 0, 0)
    assert stats.p50 is not None
    assert [verdict.attempts for verdict in verdicts] == [0, 0, 0, 1]


# Coalescing and the cache.


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_identical_requests_in_flight_are_sent_once(shared_judge: rc.Judge, server: HostileServer) -> None:
    script, before = server.script(breathing), shared_judge.stats
    verdicts = shared_judge.judge([script.sample()] * 6)
    assert statuses(verdicts) == ["ok"] * 6
    assert script.requests == 1
    assert sum(verdict.attempts for verdict in verdicts) == 1
    assert shared_judge.stats.coalesced - before.coalesced == 5


def test_a_parse_that_takes_the_sample_reads_a_shared_reply_for_each_of_them(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(held)
    one = script.sample()
    samples = [replace(one, ground_truth=truth) for truth in ("7", "8", None, "7")]
    with open_judge(mode, rubric=SeesTheTruth(), cache=True) as judge:
        pending = judge.submit(samples)
        script.release()
        for verdicts in (pending.result(), judge.judge(samples)):  # the second time out of the cache
            assert [verdict.score for verdict in verdicts] == [1.0, 0.0, None, 1.0]
            assert statuses(verdicts) == ["ok", "ok", "unparsed", "ok"]
    assert script.requests == 1


@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_identical_requests_of_two_submits_are_sent_once(shared_judge: rc.Judge, server: HostileServer) -> None:
    script = server.script(held)
    first, second = shared_judge.submit(script.samples(1)), shared_judge.submit(script.samples(1))
    script.saw(1)
    script.release()
    assert statuses(first.result()) == statuses(second.result()) == ["ok"]
    assert script.requests == 1


def test_only_distinct_requests_are_paid(mode: str, open_judge: Opener, server: HostileServer) -> None:
    script = server.script(breathing)
    with open_judge(mode, cache=True) as judge:
        verdicts = judge.judge(script.samples(8) * 4)
        assert judge.stats.requests == 8
    assert statuses(verdicts) == ["ok"] * 32
    assert script.requests == 8
    assert sum(verdict.attempts for verdict in verdicts) == 8


def test_each_draw_is_a_request_of_its_own_and_is_paid_once(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(*(says(f"<score>{score}</score>") for score in (1, 4, 10)))
    draws = [replace(script.sample(), draw=draw) for draw in (0, 1, 2, 1)]
    with open_judge(mode, cache=True, max_concurrent=1) as judge:
        first = judge.judge(draws)
        again = judge.judge(draws[::-1])
    assert [verdict.score for verdict in first] == [0.0, 1 / 3, 1.0, 1 / 3]
    assert [(verdict.score, verdict.cached) for verdict in again] == [(v.score, True) for v in first[::-1]]
    assert script.requests == 3


def test_a_warm_cache_sends_nothing_and_is_shared_by_every_mode(
    open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    """Judges in turn on one file: the key is the same whoever asks."""
    script, cache = server.script(ok), tmp_path / "cache.sqlite"
    with open_judge("sync", cache=cache) as judge:
        first = judge.judge(script.samples(4))
    for mode in MODES:
        with open_judge(mode, cache=cache) as judge:
            again = judge.judge(script.samples(4))
            stats = judge.stats
        assert [verdict.score for verdict in again] == [verdict.score for verdict in first]
        assert all(verdict.cached for verdict in again)
        assert (stats.requests, stats.cached) == (0, 4)
    assert script.requests == 4


def test_a_failure_is_never_cached(mode: str, open_judge: Opener, server: HostileServer) -> None:
    scripts = [
        server.script(first, ok)
        for first in (answers(400), says("x", "length"), says(None, refusal="no"), answers(200, "[]"), says(""))
    ]
    samples = [script.sample() for script in scripts]
    with open_judge(mode, cache=True) as judge:
        assert "ok" not in statuses(judge.judge(samples))
        assert statuses(judge.judge(samples)) == ["ok"] * 5


# Closing.


@pytest.fixture
def sockets_come_back() -> Iterator[None]:
    """The server lives in this process, so a connection that is kept by either side shows."""
    before = leftovers.sockets()
    yield
    eventually(lambda: leftovers.sockets() <= before, "every socket is closed")


@pytest.mark.usefixtures("sockets_come_back")
@pytest.mark.parametrize("work", ["none", "done", "pending", "timed out"])
def test_close_leaves_nothing_behind(
    mode: str, work: str, open_judge: Opener, server: HostileServer, tmp_path: Path
) -> None:
    """Also without a moment's grace for threads and children."""
    threads, children = leftovers.threads(), leftovers.children()
    script = server.script(ok if work == "done" else silent)
    judge = open_judge(mode, cache=tmp_path / "cache.sqlite", deadline=0.5 if work == "timed out" else 30.0)
    pending = judge.submit(script.samples(3)) if work != "none" else None
    if pending is not None and work != "pending":
        assert set(statuses(pending.result())) == {"ok" if work == "done" else "timeout"}
    judge.close()
    assert leftovers.threads() <= threads
    assert leftovers.children() <= children
    judge.close()
    assert judge.stats.in_flight == 0
    if pending is not None and work == "pending":
        verdicts = pending.result(timeout=5)
        assert statuses(verdicts) == ["failed"] * 3
        assert all(str(verdict.error).startswith("JudgeClosed") for verdict in verdicts)
        pending.cancel()


@pytest.mark.usefixtures("sockets_come_back")
@pytest.mark.parametrize("mode", CONCURRENT_MODES)
def test_close_with_requests_on_the_wire_returns_and_leaves_nothing(
    mode: str, open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(silent)
    judge = open_judge(mode, deadline=600.0)
    pending = judge.submit(script.samples(2))
    script.saw(2)
    judge.close()
    assert statuses(pending.result(timeout=0)) == ["failed"] * 2


@pytest.mark.usefixtures("sockets_come_back")
def test_an_exception_in_the_caller_leaves_nothing_behind(mode: str, open_judge: Opener, server: HostileServer) -> None:
    script = server.script(silent)
    with pytest.raises(ZeroDivisionError), open_judge(mode) as judge:  # noqa: PT012
        judge.submit(script.samples(3))
        raise ZeroDivisionError
    with pytest.raises(rc.RewardcoreError, match="closed; open another"):
        judge.judge(script.samples(1))


def test_a_closed_judge_says_so(mode: str, open_judge: Opener) -> None:
    judge = open_judge(mode)
    judge.close()
    for use in (judge.judge, judge.submit):
        with pytest.raises(rc.RewardcoreError, match="closed; open another"):
            use([])
    with pytest.raises(rc.RewardcoreError, match="closed; open another"), judge:
        judge.submit([])
    assert "judge" in repr(judge)


def test_two_judges_share_the_loop_and_closing_one_leaves_the_other_alone(
    open_judge: Opener, server: HostileServer
) -> None:
    script = server.script(ok)
    with open_judge("asyncio-aiohttp") as one:
        with open_judge("asyncio-httpx") as other:
            other.judge(script.samples(2))
        assert statuses(one.judge(script.samples(2))) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("mode", "options", "match"),
    [
        ("sync", {"max_concurrent": 0}, "max_concurrent"),
        ("asyncio-aiohttp", {"deadline": -1}, "deadline"),
        ("asyncio-aiohttp", {"deadline": float("nan")}, "deadline"),
        ("asyncio-aiohttp", {"transport": "curl"}, "transport"),
        ("asyncio-aiohttp", {"background": "fiber"}, "background"),
        ("asyncio-aiohttp", {"deadline": 10**400}, "deadline must be seconds above 0"),
        ("asyncio-aiohttp", {"clock": time}, "clock must be a rewardcore.clock.Clock"),
        ("process", {"workers": 0}, "workers"),
        ("process", {"worker_setup": 7}, "worker_setup must be a function without arguments, not 7"),
        ("sync", {"cache": rc.MemoryCache}, "cache must be True"),
        ("sync", {"cache": "~nobody-of-that-name/judge.sqlite"}, "nobody-of-that-name does not exist; make it"),
        ("sync", {"rubric": "quality"}, "rubric"),
        ("sync", {"workers": 2}, "workers is no option of mode 'sync'"),
        ("asyncio-child-process", {"cache": rc.MemoryCache()}, "cache must be a path"),
    ],
)
def test_a_wrong_option_is_a_clear_error_before_anything_starts(
    mode: str, options: dict[str, object], match: str, open_judge: Opener
) -> None:
    with pytest.raises(rc.ConfigurationError, match=match):
        open_judge(mode, **options)


@pytest.mark.parametrize("mode", [None, "Asyncio", ["asyncio"], rc.Endpoint("http://127.0.0.1:8000/v1", "judge")])
def test_a_mode_that_is_none_is_told_which_there_are(mode: object) -> None:
    with pytest.raises(rc.ConfigurationError, match="mode must be one of 'sync', 'process', 'asyncio', 'self'"):
        rc.open_judge(mode, None)  # type: ignore[call-overload]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:8000/v1", None, rc.Endpoint])
def test_what_is_no_endpoint_is_told_how_to_make_one(endpoint: object) -> None:
    with pytest.raises(rc.ConfigurationError, match=r"rewardcore\.Endpoint, such as Endpoint\(.*, model=.*\), not"):
        rc.open_judge("asyncio", endpoint)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        (None, "samples must be a list of Samples, not one NoneType"),
        (rc.Sample("p", "r"), "samples must be a list of Samples, not one Sample"),
        (
            [rc.Sample("p", "r"), {"prompt": "p"}],
            r"samples\[1\] must be a rewardcore.Sample\(prompt, response\), not a dict",
        ),
    ],
)
def test_what_is_no_sample_is_named_with_its_place(shared_judge: rc.Judge, samples: object, says: str) -> None:
    for use in (shared_judge.judge, shared_judge.submit, lambda given: list(shared_judge.stream(given))):
        with pytest.raises(rc.ConfigurationError, match=says):
            use(samples)  # type: ignore[operator]


def test_a_key_that_no_header_can_carry_is_an_error_up_front(
    mode: str, open_judge: Opener, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\u00e9t\u00e9")
    with pytest.raises(rc.ConfigurationError, match="OPENAI_API_KEY"):
        open_judge(mode)


def test_an_unusable_cache_file_is_an_error_up_front(mode: str, open_judge: Opener, tmp_path: Path) -> None:
    with pytest.raises(rc.CacheError, match="missing"):
        open_judge(mode, cache=tmp_path / "missing" / "cache.sqlite")


def test_a_judge_is_an_async_context_manager_too(mode: str, open_judge: Opener, server: HostileServer) -> None:
    async def main() -> list[rc.Verdict]:
        async with open_judge(mode) as judge:
            return await asyncio.to_thread(judge.judge, server.script(ok).samples(2))

    assert statuses(asyncio.run(main())) == ["ok", "ok"]

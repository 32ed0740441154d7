"""Promises of virtual time: exact makespans, no wall time, no spinning, no callback jumped over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from math import ceil
from typing import Any

import httpx
import orjson
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st

from bench.mounted import MountedJudge, mount_judge
from bench.virtual import VirtualClock, VirtualSelector
from rewardcore.testing.latency import LatencyModel, Profile
from rewardcore.testing.replies import expected_score

URL = "http://judge.test/v1/chat/completions"
NET = 60.0  # real seconds after which a test that waits for an event gives up; never reached when all is well
CONSTANT = Profile(latency=2.0)
LIVELY = Profile(latency=0.5, spread=0.5, straggler_fraction=0.05, error_fraction=0.1, load_growth=0.01)


def message(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"sample {number}: <score>X</score>"}]


def body(number: int) -> bytes:
    return orjson.dumps({"model": "judge", "messages": message(number)})


@contextmanager
def mounted(clock: VirtualClock, profile: Profile, seed: int = 0) -> Iterator[MountedJudge]:
    with respx.mock(assert_all_called=False) as router:
        yield mount_judge(router, clock, LatencyModel(profile, seed))


def judge_sync(count: int) -> list[httpx.Response]:
    with httpx.Client() as client:
        return [client.post(URL, content=body(number)) for number in range(count)]


async def judge_async(count: int, workers: int) -> list[httpx.Response]:
    permits = asyncio.Semaphore(workers)

    async def one(client: httpx.AsyncClient, number: int) -> httpx.Response:
        async with permits:
            return await client.post(URL, content=body(number))

    async with httpx.AsyncClient() as client:
        return await asyncio.gather(*(one(client, number) for number in range(count)))


@contextmanager
def background(clock: VirtualClock) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own, as the asyncio judge has one."""
    loop, is_running = clock.new_event_loop(), threading.Event()
    loop.call_soon(is_running.set)  # until it runs, the clock knows nothing of it, and may jump past it
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    is_running.wait(NET)
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(NET)
        assert not thread.is_alive()
        loop.close()


def submit(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Future[Any]:
    return asyncio.run_coroutine_threadsafe(work, loop)


def test_1024_calls_of_2_seconds_one_by_one_take_2048_seconds_exactly() -> None:
    clock = VirtualClock()
    with mounted(clock, CONSTANT) as judge:
        replies = judge_sync(1024)
    assert clock.now() == judge.last_reply == 2048.0
    assert (judge.judge.requests, judge.judge.peak_in_flight) == (1024, 1)
    scores = [round(expected_score(message(number)) * 9 + 1) for number in range(1024)]
    assert all(f"<score>{score}<" in reply.text for score, reply in zip(scores, replies, strict=True))


def test_1024_calls_of_2_seconds_60_at_once_take_36_seconds_exactly() -> None:
    clock = VirtualClock()
    with mounted(clock, CONSTANT) as judge:
        replies = clock.run(judge_async(1024, 60))
    assert clock.now() == judge.last_reply == 36.0
    assert (judge.judge.requests, judge.judge.peak_in_flight) == (1024, 60)
    with mounted(VirtualClock(), CONSTANT):
        assert [r.content for r in replies] == [r.content for r in judge_sync(1024)]


def test_60_held_threads_take_36_seconds_exactly() -> None:
    clock = VirtualClock()
    everybody = threading.Barrier(61)
    numbers = iter(range(1024))
    lock = threading.Lock()

    def worker() -> None:
        with clock.hold(), httpx.Client() as client:
            everybody.wait(NET)
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                client.post(URL, content=body(number))

    threads = [threading.Thread(target=worker) for _ in range(60)]
    with mounted(clock, CONSTANT) as judge:
        with clock.hold():
            for thread in threads:
                thread.start()
            everybody.wait(NET)
        for thread in threads:
            thread.join(NET)
    assert clock.now() == 36.0
    assert (judge.judge.requests, judge.judge.peak_in_flight) == (1024, 60)


@given(st.integers(0, 200), st.integers(1, 64), st.integers(1, 5000))
def test_constant_latency_takes_the_analytic_makespan_without_rounding_noise(
    count: int, workers: int, milliseconds: int
) -> None:
    async def call(permits: asyncio.Semaphore) -> None:
        async with permits:
            await asyncio.sleep(milliseconds / 1000)

    async def all_calls() -> None:
        permits = asyncio.Semaphore(workers)
        await asyncio.gather(*(call(permits) for _ in range(count)))

    clock, plain = VirtualClock(), VirtualClock()
    clock.run(all_calls())
    assert clock.now() == ceil(count / workers) * milliseconds / 1000
    for _ in range(count):
        plain.sleep(milliseconds / 1000)
    assert plain.now() == count * milliseconds / 1000


def test_the_same_seed_gives_the_same_story_twice() -> None:
    def story(seed: int) -> tuple[float, int, list[tuple[int, bytes]]]:
        clock = VirtualClock()
        with mounted(clock, LIVELY, seed) as judge:
            replies = clock.run(judge_async(200, 20))
        return clock.now(), judge.judge.requests, [(r.status_code, r.content) for r in replies]

    assert story(1) == story(1)
    assert story(1)[0] != story(2)[0]


def test_one_by_one_the_makespan_is_the_sum_of_the_models_latencies() -> None:
    profile = Profile(latency=0.5, spread=0.5)
    clock = VirtualClock()
    with mounted(clock, profile, seed=3) as judge:
        judge_sync(50)
        judge.reset()
        assert (judge.judge.requests, len(judge.router.calls)) == (0, 0)
        started = clock.now()
        judge_sync(50)
    assert clock.now() - started == pytest.approx(started, abs=1e-7)  # reset: the same draws again
    assert started == pytest.approx(50 * 0.5, rel=0.3)


@pytest.mark.parametrize(
    ("waiting", "ends"),
    [
        (lambda: asyncio.wait_for(asyncio.sleep(100), 1.5), 1.5),
        (lambda: asyncio.wait_for(asyncio.sleep(1), 1.5), 1.0),
        (lambda: asyncio.sleep(86_400 * 3), 86_400 * 3.0),  # beyond the longest wait of a selector
        (lambda: asyncio.sleep(0), 0.0),
        (lambda: asyncio.sleep(1e-12), 1e-9),  # less than a tick takes one
    ],
)
def test_timeouts_and_sleeps_end_when_they_say(waiting: Callable[[], Any], ends: float) -> None:
    clock = VirtualClock()

    async def wait() -> None:
        with suppress(TimeoutError):
            await waiting()

    clock.run(wait())
    assert clock.now() == ends


def test_whoever_waits_for_less_than_a_tick_again_and_again_gets_there() -> None:
    """As the engine does when a retry is due a fraction of a nanosecond from now."""
    clock, due, turns = VirtualClock(), 3e-10, []

    async def wait_until_due() -> None:
        while clock.now() < due:
            turns.append(clock.now())
            assert len(turns) < 100, "time stands still"
            await asyncio.sleep(due - clock.now())

    clock.run(wait_until_due())
    assert len(turns) == 1


def test_timers_fire_in_order_at_their_own_instants() -> None:
    clock = VirtualClock()
    fired: list[tuple[str, float]] = []

    def note(name: str) -> None:
        fired.append((name, clock.now()))

    async def set_timers() -> None:
        loop = asyncio.get_running_loop()
        for name, when in (("late", 3.0), ("early", 0.1), ("middle", 0.30000000000000004)):
            loop.call_at(when, note, name)
        loop.call_later(1.0, fired.append, ("cancelled", 0.0)).cancel()
        await asyncio.sleep(3.5)

    clock.run(set_timers())
    assert fired == [("early", 0.1), ("middle", 0.3), ("late", 3.0)]


def test_tasks_left_over_are_cancelled_when_run_ends() -> None:
    clock = VirtualClock()

    async def leave_one_behind() -> asyncio.Task[None]:
        return asyncio.ensure_future(asyncio.sleep(100))

    assert clock.run(leave_one_behind()).cancelled()
    assert clock.now() == 0.0


def test_another_thread_submits_to_an_idle_loop_and_reads_the_exact_time() -> None:
    clock = VirtualClock()
    with mounted(clock, CONSTANT), background(clock) as loop:
        for batch in range(1, 4):
            submit(loop, judge_async(120, 60)).result(NET)
            assert clock.now() == batch * 4.0


def test_an_idle_loop_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = 0
    select = VirtualSelector.select

    def counting(self: VirtualSelector, timeout: float | None = None) -> Any:
        nonlocal polls
        polls += 1
        return select(self, timeout)

    monkeypatch.setattr(VirtualSelector, "select", counting)
    clock = VirtualClock()
    with background(clock) as loop:
        for _ in range(10):
            submit(loop, asyncio.sleep(1.0)).result(NET)
    assert clock.now() == 10.0
    assert polls < 100


@pytest.mark.parametrize(("computing", "waited"), [(40.0, 0.0), (36.0, 0.0), (10.0, 26.0)])
def test_a_held_thread_computes_while_a_batch_is_judged(computing: float, waited: float) -> None:
    clock = VirtualClock()
    with mounted(clock, CONSTANT), background(clock) as loop:
        with clock.hold():
            pending = submit(loop, judge_async(1024, 60))
            clock.sleep(computing)
            computed = clock.now()
        pending.result(NET)
        assert computed == computing
        assert clock.now() - computed == waited


def test_time_stands_still_for_a_held_thread_whatever_timers_wait() -> None:
    clock = VirtualClock()
    with background(clock) as loop:
        with clock.hold():
            first = submit(loop, asyncio.sleep(5.0, clock))
            second = submit(loop, asyncio.sleep(0))
            second.result(NET)  # the loop runs, and time does not
            assert (clock.now(), first.done()) == (0.0, False)
        assert first.result(NET).now() == 5.0


def test_a_callback_queued_before_a_sleep_is_never_jumped_over() -> None:
    clock = VirtualClock()

    def note(seen: list[float]) -> None:
        seen.append(clock.now())

    with background(clock) as loop, clock.hold():
        for turn in range(300):
            seen: list[float] = []
            loop.call_soon_threadsafe(note, seen)
            clock.sleep(1.0)
            assert seen == [float(turn)]


def test_a_callback_queued_at_the_last_moment_runs_before_time_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    loop = clock.new_event_loop()
    select = VirtualSelector.select
    seen: list[float] = []

    def queue_one_first(self: VirtualSelector, timeout: float | None = None) -> Any:
        if timeout and not seen:
            loop.call_soon_threadsafe(lambda: seen.append(clock.now()))
        return select(self, timeout)

    monkeypatch.setattr(VirtualSelector, "select", queue_one_first)
    loop.run_until_complete(asyncio.sleep(5.0))
    loop.close()
    assert (seen, clock.now()) == ([0.0], 5.0)


def test_two_loops_share_one_clock() -> None:
    clock = VirtualClock()
    log: list[tuple[str, float]] = []

    async def tick(name: str, pause: float, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(pause)
            log.append((name, clock.now()))

    with background(clock) as one, background(clock) as two:
        with clock.hold():
            pending = [submit(one, tick("two", 2.0, 5)), submit(two, tick("three", 3.0, 3))]
        for future in pending:
            future.result(NET)
    assert sorted(log) == [("three", 3.0 * n) for n in (1, 2, 3)] + [("two", 2.0 * n) for n in range(1, 6)]
    assert [when for _, when in log] == sorted(when for _, when in log)
    assert clock.now() == 10.0


def test_time_does_not_jump_past_the_work_of_a_loop_whose_thread_begins_late() -> None:
    clock = VirtualClock()
    loop, seen = clock.new_event_loop(), []
    thread = threading.Thread(target=lambda: loop.run_until_complete(asyncio.sleep(7.0)))
    wait = clock._wait

    def begin_the_thread_first(*given: Any) -> bool:
        """Somebody sleeps, and only then does the loop's thread begin."""
        clock._wait = wait  # type: ignore[method-assign]
        thread.start()
        return wait(*given)

    clock._wait = begin_the_thread_first  # type: ignore[method-assign]
    loop.call_soon_threadsafe(lambda: seen.append(clock.now()))
    clock.sleep(5.0)
    thread.join(NET)
    loop.close()
    assert seen == [0.0]


def test_a_loop_that_never_ran_holds_nobody_up_once_it_is_closed() -> None:
    clock = VirtualClock()
    loop = clock.new_event_loop()
    loop.call_soon_threadsafe(print)
    loop.close()
    clock.sleep(5.0)
    assert clock.now() == 5.0


def test_a_plain_thread_beside_a_loop_never_deadlocks() -> None:
    clock = VirtualClock()
    with background(clock) as loop:
        pending = submit(loop, asyncio.sleep(10.0))
        clock.sleep(5.0)
        pending.result(NET)
    assert clock.now() >= 10.0


def test_work_in_an_executor_takes_no_time_though_a_timer_waits() -> None:
    clock = VirtualClock()

    def work() -> float:
        for _ in range(1000):
            threading.Event().wait(0)  # let the loop run, so that it would jump if it could
        return clock.now()

    async def both() -> tuple[float, float]:
        timer = asyncio.ensure_future(asyncio.sleep(5.0))
        finished = await asyncio.to_thread(work)
        noticed = clock.now()
        await timer
        return finished, noticed

    assert clock.run(both()) == (0.0, 0.0)
    assert clock.now() == 5.0


def test_sync_judging_in_threads_of_a_loop_is_exact_too() -> None:
    clock = VirtualClock()

    async def all_threads() -> None:
        await asyncio.gather(*(asyncio.to_thread(judge_sync, 3) for _ in range(4)))

    with mounted(clock, CONSTANT) as judge:
        clock.run(all_threads())
    assert clock.now() == 6.0
    assert judge.judge.peak_in_flight == 4


@pytest.mark.parametrize(("sleep_on", "ends"), [(0.0, 100.0), (199.0, 200.0)])
def test_giving_up_on_a_sleeping_thread_leaves_nothing_hanging(sleep_on: float, ends: float) -> None:
    clock = VirtualClock()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(clock.sleep, 100.0), 1.0)
        assert clock.now() == 1.0
        await asyncio.sleep(sleep_on)

    clock.run(give_up())
    assert clock.now() == ends  # the thread is joined, and slept to its end


def test_a_blocking_sleep_on_the_loops_own_thread_passes_time() -> None:
    clock = VirtualClock()

    async def block() -> float:
        timer = asyncio.ensure_future(asyncio.sleep(1.0))
        await asyncio.sleep(0)
        clock.sleep(3.0)
        await timer
        return clock.now()

    assert clock.run(block()) == 3.0


def test_a_call_that_is_given_up_is_no_longer_in_flight() -> None:
    clock = VirtualClock()

    async def impatient() -> None:
        async with httpx.AsyncClient() as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.post(URL, content=body(0)), 0.5)

    with mounted(clock, CONSTANT) as judge:
        clock.run(impatient())
        assert (judge.judge.in_flight, clock.now()) == (0, 0.5)


def test_refusals_come_through_respx_with_status_and_headers() -> None:
    clock = VirtualClock()
    with mounted(clock, Profile(latency=2.0, concurrency_limit=80)) as judge:
        replies = clock.run(judge_async(100, 100))
    statuses = [reply.status_code for reply in replies]
    assert (statuses.count(200), statuses.count(429)) == (80, 20)
    assert {r.headers.get("retry-after") for r in replies if r.status_code == 429} == {"1"}
    assert (clock.now(), judge.judge.peak_in_flight) == (2.0, 81)

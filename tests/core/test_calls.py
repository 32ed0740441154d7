"""A batch ends once, whoever ends it, and everyone who waits is told once, whenever they began to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from collections.abc import Callable

import pytest

from rewardcore import Sample, Verdict
from rewardcore.calls import Batch, Call, Driver, Pending
from rewardcore.clock import SYSTEM_CLOCK
from rewardcore.stats import Stats

OK = Verdict("ok", 1.0, "<score>10</score>")


class Nobody(Driver):
    """Takes calls on, and leaves them to the test."""

    def begin(self, call: Call) -> None: ...

    def abandon(self, call: Call) -> None:
        call.let_go()

    def close(self) -> None: ...

    def stats(self) -> Stats:
        return Stats()


def batch_of_one() -> Batch:
    return Batch([(0, Sample("question", "answer"))], deadline=1.0)


def finish(batch: Batch) -> None:
    batch.call.settle(0, OK)


def pending(batch: Batch) -> Pending:
    return Pending(batch, Nobody(SYSTEM_CLOCK), lambda seconds: None)


def together(*deeds: Callable[[], object]) -> None:
    """Each in a thread of its own, begun at the same moment."""
    barrier = threading.Barrier(len(deeds))

    def run(deed: Callable[[], object]) -> None:
        barrier.wait()
        deed()

    threads = [threading.Thread(target=run, args=(deed,)) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_finished_batch_gives_its_verdicts_and_cannot_be_cancelled() -> None:
    batch = batch_of_one()
    finish(batch)
    assert not batch.cancel()
    assert pending(batch).result() == [OK]


def test_a_cancelled_batch_says_so_whatever_comes_later() -> None:
    batch = batch_of_one()
    assert batch.cancel()
    finish(batch)
    assert not batch.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        pending(batch).result()


def test_an_empty_batch_is_done_at_once() -> None:
    assert pending(Batch([], deadline=1.0)).result() == []


def test_whoever_asks_after_the_end_is_told_at_once() -> None:
    batch, told = batch_of_one(), []
    finish(batch)
    batch.when_done(lambda: told.append("late"))
    assert told == ["late"]


def test_of_a_cancel_and_the_last_verdict_one_wins_and_everyone_is_told_once() -> None:
    for _ in range(300):
        batch, told = batch_of_one(), []
        batch.when_done(lambda told=told: told.append("early"))
        won: list[bool] = []
        together(
            lambda batch=batch: finish(batch),
            lambda batch=batch, won=won: won.append(batch.cancel()),
            lambda batch=batch, told=told: batch.when_done(lambda: told.append("beside")),
        )
        assert sorted(told) == ["beside", "early"]
        assert won == [batch.is_cancelled]
        assert batch.is_done


def test_waiters_of_one_batch_share_one_event() -> None:
    batch = batch_of_one()
    event = batch.done_event(SYSTEM_CLOCK)
    assert batch.done_event(SYSTEM_CLOCK) is event
    finish(batch)
    assert event.wait(0.0)


async def test_a_loop_that_waits_is_woken_by_another_thread() -> None:
    batch = batch_of_one()
    waiting = asyncio.ensure_future(pending(batch))
    await asyncio.sleep(0)
    await asyncio.to_thread(finish, batch)
    assert await waiting == [OK]


async def test_cancelling_who_waits_in_a_loop_cancels_the_batch() -> None:
    batch = batch_of_one()
    waiting = asyncio.ensure_future(pending(batch))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert batch.is_cancelled


def test_a_batch_that_ends_after_its_waiters_loop_is_closed_troubles_nobody() -> None:
    batch = batch_of_one()
    loop = asyncio.new_event_loop()
    waiting = asyncio.ensure_future(pending(batch), loop=loop)
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    finish(batch)
    assert batch.is_cancelled


def test_a_batch_of_one_that_waits_is_a_handful_of_objects() -> None:
    """A trainer has thousands of them open, and the garbage collector looks at every object again and again."""
    samples = [Sample("question", str(number)) for number in range(500)]
    gc.collect()
    before = len(gc.get_objects())
    waiting = [pending(Batch([(0, sample)], deadline=1.0)) for sample in samples]
    each = (len(gc.get_objects()) - before) / len(waiting)
    assert each < 16  # eleven more with a future of the standard library

"""What threads share without a lock, in every order: each pair of lines at which they may be interrupted is played."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from rewardcore import RewardcoreError, Sample, Verdict, judge, notices
from rewardcore.calls import Batch, Call, Driver
from rewardcore.http.drivers import sync
from rewardcore.notices import Losses, Tally
from rewardcore.stats import Stats
from tests.simulation import put_back, threads
from tests.simulation.history import History
from tests.simulation.stage import Stage

Deeds = list[Callable[[], Any]]


def play(build: Callable[[Stage], tuple[Deeds, Callable[[], None]]], cuts: tuple[int, ...]) -> int:
    """The deeds, each in its thread, interrupted at those lines; how many lines there were."""
    stage, lines = Stage(), itertools.count()
    deeds, check = build(stage)
    stage.interrupts = lambda: 0.0 if next(lines) in cuts else None

    async def everybody() -> None:
        for done in [stage.start_thread(deed) for deed in deeds]:
            await done

    stage.play(everybody(), lambda: None)
    check()
    return next(lines)


def in_every_order(build: Callable[[Stage], tuple[Deeds, Callable[[], None]]]) -> None:
    lines = play(build, ())
    assert lines > 4, "nothing was interrupted"
    for cuts in itertools.combinations(range(lines + 2), 2):
        play(build, cuts)


def counting(kind: type[Losses], told: list[int]) -> Callable[[Stage], tuple[Deeds, Callable[[], None]]]:
    def build(stage: Stage) -> tuple[Deeds, Callable[[], None]]:
        losses = kind(stage.now)
        told.clear()

        def end(why: str) -> None:
            tally = Tally()
            tally.add(Verdict("failed", error=f"{why}: why"))
            losses.ended(tally, 1)

        def check() -> None:
            losses.flush()
            assert sum(told) == 2, "each of two losses is told once"

        return [lambda: end("One"), lambda: end("Other"), losses.flush], check

    return build


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    monkeypatch.setattr(notices, "say", lambda _, *words, **__: counts.append(int(words[-1].split()[0])))
    return counts


def test_every_loss_is_told_once(told: list[int]) -> None:
    in_every_order(counting(Losses, told))


def test_one_tally_for_two_threads_is_found_out(told: list[int]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        in_every_order(counting(put_back.SharedLosses, told))


def test_a_batch_ends_once_and_whoever_waits_is_told() -> None:
    def build(stage: Stage) -> tuple[Deeds, Callable[[], None]]:
        batch, ended, woken = Batch([(0, Sample("p", "r"))], 1.0), list[bool](), list[bool]()

        def finish() -> None:
            batch.call.settle(0, Verdict("ok", 1.0))

        def wait() -> None:
            woken.append(batch.done_event(stage).wait(9.0))  # type: ignore[arg-type]

        def check() -> None:
            assert batch.is_done
            assert batch.is_cancelled == ended[0]
            assert woken == [True]

        return [finish, lambda: ended.append(batch.cancel()), wait], check

    in_every_order(build)


class Slow(Driver):
    """Takes a moment to close."""

    def __init__(self, stage: Any) -> None:
        super().__init__(stage)
        self.closes, self.is_closed = 0, False

    def begin(self, call: Call) -> None: ...

    abandon = begin

    def stats(self) -> Stats:
        return Stats()

    def close(self) -> None:
        self.closes += 1
        self.clock.sleep(1.0)
        self.is_closed = True


def test_whoever_ends_a_driver_returns_when_it_is_closed() -> None:
    def build(stage: Stage) -> tuple[Deeds, Callable[[], None]]:
        driver, found = Slow(stage), list[bool]()

        def end() -> None:
            driver.end()
            found.append(driver.is_closed)

        def check() -> None:
            assert (driver.closes, found) == (1, [True, True])

        return [end, end], check

    in_every_order(build)


def test_in_sync_whoever_waits_cancels_or_closes_leaves_no_call_behind() -> None:
    """A call that has not begun is begun by one thread, while another cancels it and a third one closes."""
    seed = next(seed for seed in range(100) if is_plain_sync(seed))
    with patch.object(threads, "INTERRUPTED", {judge.__file__, sync.__file__}):
        for pair in itertools.islice(itertools.combinations(range(40), 2), 0, None, 3):
            history, reached = History(seed), itertools.count()
            history.stage.interrupts = None

            async def everybody(history: History = history, reached: Any = reached, pair: Any = pair) -> None:
                await history.stage.start_thread(history._open)
                pending = history.judge.submit([Sample("p", "quick-1")])
                history.stage.interrupts = lambda: 0.0 if next(reached) in pair else None
                deeds = [lambda: _tried(pending.wait), lambda: _tried(pending.cancel), history.judge.close]
                for done in [history.stage.start_thread(deed) for deed in deeds]:
                    await done
                history.stage.interrupts = None
                assert pending.done()

            with history.ears.listening():
                history.stage.play(everybody(), lambda: None)


def is_plain_sync(seed: int) -> bool:
    history = History(seed)
    history.stage.close()
    return history.mode == "sync" and history.file is None


def _tried(deed: Callable[[], object]) -> None:
    with contextlib.suppress(RewardcoreError):  # it is closed
        deed()

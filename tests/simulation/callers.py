"""What callers of a history do: they wait, poll, stream, cancel, break off, watch, count and close, in every way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError

from rewardcore import Judge, Sample, Verdict
from rewardcore.calls import Call
from tests.simulation.caches import File
from tests.simulation.ears import NOBODY_READS, watcher
from tests.simulation.remote import ANSWERS_IN
from tests.simulation.stage import Stage
from tests.simulation.threads import Thread, is_in_thread
from tests.simulation.world import World, Wrong, score_of

Deed = Callable[[list[str]], Awaitable[None]]
_MOMENT = 1e-6


class Callers:
    """`judge` is theirs; `deadline` and `grace` say when each of its calls must have ended, `closes_in` when it."""

    judge: Judge

    def __init__(self, stage: Stage, world: World, deadline: float) -> None:
        self.stage, self.world, self.dice = stage, world, world.dice
        self.deadline = deadline
        self.grace, self.closes_in = 0.0, 1.0
        self.is_closed, self.closed_at = False, -2.0
        self.file: File | None = None

    def deeds(self) -> list[Deed]:
        in_a_thread = [
            self._judge_them,
            self._judge_again,
            self._cancel_later,
            self._cancel_at_once_and_ask_again,
            self._ask_now_and_then,
            self._read_on,
            self._stop_reading,
            self._watch,
            self._listen_badly,
            self._count,
        ]
        in_the_loop = [self._await, self._await_impatiently, self._stream, self._break_off]
        return [*map(self._thread, in_a_thread), self._one_by_one, self._sleep, *in_the_loop]

    def _thread(self, deed: Callable[[list[Sample]], None]) -> Deed:
        async def do(words: list[str]) -> None:
            await self.stage.start_thread(lambda: deed(samples_of(words)))

        do.__name__ = deed.__name__.strip("_")
        return do

    @contextlib.contextmanager
    def within(self, seconds: float, what: str, *, waits_for_threads: bool = False) -> Iterator[None]:
        """Whatever happens, `what` takes so long at most; while everything is suspended, no time passes for it.

        Nor while its thread is interrupted, or any thread, where it waits for others.
        """
        ends = self._time(waits_for_threads) + seconds
        yield
        if (late := self._time(waits_for_threads) - ends) > _MOMENT:
            raise Wrong(f"{what} lasts {late:.3f} s longer than it may")

    def _time(self, waits_for_threads: bool = False) -> float:
        away = Thread.current().away if is_in_thread() else 0.0
        away = self.stage.away if waits_for_threads else away
        return self.stage.now() - self.stage.suspended - away

    def in_time(self) -> contextlib.AbstractContextManager[None]:
        return self.within(self.deadline + self.grace, "a call")

    def _judge_them(self, samples: list[Sample]) -> None:
        with self.in_time():
            verdicts = self.judge.judge(samples)
        self.check(samples, verdicts)

    def _judge_again(self, samples: list[Sample]) -> None:
        self._judge_them(samples)
        self._judge_them(samples)

    def _watch(self, samples: list[Sample]) -> None:
        with self.in_time():
            verdicts = self.judge.judge(samples, progress=watcher(self.world))
        self.check(samples, verdicts)

    def _listen_badly(self, samples: list[Sample]) -> None:
        """Whoever is told of the first verdict raises: it keeps no other from anybody."""
        told: dict[int, Verdict] = {}
        ended = self.stage.event()

        def tell(index: int, verdict: Verdict) -> None:
            if index in told:
                raise Wrong(f"sample {index} has two verdicts")
            told[index] = verdict
            if index == 0:
                raise BrokenPipeError(NOBODY_READS)

        with self.in_time():
            call = Call(enumerate(samples), self.judge._deadline(), tell, ended.set)
            driver = self.judge._here()
            driver.begin(call)
            driver.wanted(call)
            ended.wait()
        self.check(samples, [told[index] for index in sorted(told)])

    def _count(self, samples: list[Sample]) -> None:
        pending = self.judge.submit(samples)
        for _ in range(3):
            with self.within(ANSWERS_IN, "stats"):
                stats = self.judge.stats
            if not 0 <= stats.in_flight <= stats.peak_in_flight <= self.world.air.limit:
                raise Wrong(f"at most {self.world.air.limit} may be in flight, and the figures are {stats}")
            self.stage.sleep(self.dice.choice([0.0, 0.3, 3.0]))
        self.check(samples, pending.result())

    def _cancel_later(self, samples: list[Sample]) -> None:
        pending = self.judge.submit(samples)
        self.stage.sleep(self.dice.choice([0.0, 0.005, 0.1, 2.0]))
        if self.dice.random() < 0.5:
            with contextlib.suppress(TimeoutError):
                self.check(samples, pending.result(timeout=self.dice.choice([0.0, 0.01, 1.0])))
        pending.cancel()

    def _cancel_at_once_and_ask_again(self, samples: list[Sample]) -> None:
        self.judge.submit(samples).cancel()
        pending = self.judge.submit(samples)
        self.judge.submit(samples_of([self.world.draw_word({"quick": 1})])).cancel()
        self.check(samples, pending.result())

    def _ask_now_and_then(self, samples: list[Sample]) -> None:
        pending = self.judge.submit(samples)
        while True:
            with contextlib.suppress(TimeoutError):
                self.check(samples, pending.result(timeout=self.dice.choice([0.0, 0.02, 0.7])))
                return
            self.stage.sleep(0.3)

    def _read_on(self, samples: list[Sample]) -> None:
        samples = samples * 3
        seen = dict(self.judge.stream(samples))
        self.check(samples, [seen[index] for index in range(len(samples))])

    def _stop_reading(self, samples: list[Sample]) -> None:
        for _ in self.judge.stream(samples * 4):
            self.stage.sleep(self.dice.choice([0.0, 0.0, 0.1]))
            if self.dice.random() < 0.4:
                break

    async def _one_by_one(self, words: list[str]) -> None:
        """As verl calls: a call for each sample, all at once."""
        words = words + [self.world.draw_word() for _ in range(4)]
        await asyncio.gather(*(self._thread(self._judge_them)([word]) for word in words))

    async def _sleep(self, _: list[str]) -> None:
        """The machine is suspended; or somebody deletes the cache's file."""
        if self.file is not None and self.dice.random() < 0.3:
            self.world.note("the cache's file is deleted")
            self.file.delete()
        else:
            self.world.note("suspended")
            self.stage.suspend(self.dice.choice([2.0, 20.0]))

    async def _await(self, words: list[str]) -> None:
        with self.in_time():
            verdicts = await self.judge.ajudge(samples_of(words))
        self.check(samples_of(words), verdicts)

    async def _await_impatiently(self, words: list[str]) -> None:
        with contextlib.suppress(TimeoutError, CancelledError):
            judging = self.judge.ajudge(samples_of(words))
            await asyncio.wait_for(judging, self.dice.choice([0.0, 0.01, 0.5]))

    async def _stream(self, words: list[str]) -> None:
        words = words * 3
        stream = self.judge.astream(samples_of(words))
        seen = {index: verdict async for index, verdict in stream}
        self.check(samples_of(words), [seen[index] for index in range(len(words))])

    async def _break_off(self, words: list[str]) -> None:
        stream = self.judge.astream(samples_of(words * 4))
        async for _ in stream:
            break
        await stream.aclose()

    def close(self) -> None:
        self.world.note("close")
        if not self.is_closed:
            self.is_closed, self.closed_at = True, self.stage.now()
        with self.within(self.closes_in, "close()", waits_for_threads=True):
            self.judge.close()
        if any(not process.is_dead for process in self.world.processes):
            raise Wrong("a process is left behind")

    def check(self, samples: list[Sample], verdicts: list[Verdict]) -> None:
        """One verdict each, in order, and a reason for each that has no score."""
        if len(verdicts) != len(samples) or any(verdict is None for verdict in verdicts):
            raise Wrong(f"{len(samples)} samples have {len(verdicts)} verdicts")
        for sample, verdict in zip(samples, verdicts, strict=True):
            kind = (verdict.error or "").partition(":")[0]
            if verdict.status == "ok" and verdict.score != score_of(sample.response):
                raise Wrong(f"the verdicts are out of order: {sample.response} has {verdict}")
            if verdict.status != "ok" and (verdict.score is not None or not kind):
                raise Wrong(f"a failure without a reason, or with a score: {verdict}")
            if kind == "JudgeClosed" and not self.is_closed:
                raise Wrong(f"{sample.response} is told that the judge was closed, and it was not")
            if kind == "WorkerDied" and not self.world.losses and not sample.response.startswith("moody"):
                raise Wrong(f"{sample.response} is told that a process died, and none has: {verdict}")


def samples_of(words: list[str]) -> list[Sample]:
    """A word that comes again is another draw, or one that was there."""
    return [Sample("p", word, draw=words[:place].count(word) % 2) for place, word in enumerate(words)]

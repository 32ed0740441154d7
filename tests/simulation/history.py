"""One seed, one history: callers of every kind, the real judge, engine and driver, and a world that resists."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError

from rewardcore import AsyncioJudge, Endpoint, Judge, RewardcoreError, Sample, Unparsed, Verdict
from rewardcore.calls import open_drivers
from rewardcore.http.cache import GuardedCache
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.drivers.sync import SyncDriver
from rewardcore.http.pace import Pace
from rewardcore.http.request import RequestBuilder
from rewardcore.judge import _judges
from tests.simulation.invariants import Checked, check_end, check_instant
from tests.simulation.stage import Stage
from tests.simulation.world import Cache, Rubric, Transport, World, Wrong, score_of

ENDPOINT = Endpoint("http://judge.test/v1", "judge", api_key_env=None)


class History:
    """Drawn and played by `play`; afterwards `world.history` tells what happened."""

    def __init__(self, seed: int) -> None:
        self.stage = Stage()
        dice = World(seed, self.stage, 0).dice
        is_sync = dice.random() < 0.2
        limit = 1 if is_sync else dice.choice([1, 2, 2, 3, 6])
        self.world = World(seed + 1_000_000, self.stage, limit)
        self.dice = self.world.dice
        self.deadline = self.dice.choice([1.0, 8.0, 60.0])
        if self.dice.random() < 0.7:
            self.world.cache = Cache(self.world)
        rubric = Rubric(self.world, self.dice.random() < 0.25, self._second_opinion)
        self.engine = self._engine(self.world, rubric, limit)
        self.judge = self._judge(self.engine, is_sync)
        inner = World(seed + 2_000_000, self.stage, 2)
        self.inner = self._judge(self._engine(inner, Rubric(inner, False, None), 2))
        self.driver: LoopDriver = self.judge._driver  # type: ignore[assignment]
        name = type(self.driver).__name__
        self.world.note(f"{name}, {limit} at once, deadline {self.deadline}, {rubric.independent=}")
        self.is_closed = False

    def play(self) -> None:
        """Raises Wrong, or Deadlock, at the first broken promise."""
        Wrong.seen.clear()
        try:
            self.stage.play(self._everybody(), lambda: check_instant(self.engine, self.driver))
        except BaseException as error:
            raise (Wrong.seen or [error])[0] from None
        finally:
            for judge in (self.judge, self.inner):
                _judges.discard(judge)  # if it went wrong, nobody closes them any more
                open_drivers.discard(judge._driver)
        for wrong in Wrong.seen:
            raise wrong
        check_end(self.engine, self.world)

    def _engine(self, world: World, rubric: Rubric, limit: int) -> Checked:
        builder = RequestBuilder(ENDPOINT, rubric)
        cache = GuardedCache(world.cache) if world.cache is not None else None
        engine = Checked(builder, rubric, cache, Pace(limit, uniform=world.dice.random), uniform=world.dice.random)
        engine.world = world
        return engine

    def _judge(self, engine: Checked, is_sync: bool = False) -> AsyncioJudge:
        parts = (self.stage, engine, lambda: Transport(engine.world), lambda _: None, self.stage)
        if is_sync:
            driver: LoopDriver = SyncDriver(self.deadline, *parts)
            return Judge("simulated", lambda: driver, self.deadline, 1, rounds=1)  # type: ignore[return-value]
        driver = LoopDriver(*parts)  # type: ignore[arg-type]
        return AsyncioJudge("simulated", lambda: driver, self.deadline, chunk_size=4)

    def _second_opinion(self, word: str) -> float:
        (verdict,) = self.inner.judge([Sample("p", f"{self.dice.choice(['quick', 'quick', 'slow'])}-0")])
        if verdict.score is None:
            raise Unparsed(self.world.blame(word, "no second opinion"))
        return score_of(word)

    async def _everybody(self) -> None:
        actors = [self._actor(number) for number in range(self.dice.randint(2, 6))]
        await asyncio.gather(*actors)
        for judge in (self.judge, self.inner):
            await self.stage.start_thread(judge.close)

    async def _actor(self, number: int) -> None:
        deeds: list[Callable[[list[str]], Awaitable[None]]] = [
            self._thread(self._judge_them),
            self._thread(self._cancel_later),
            self._thread(self._cancel_at_once_and_ask_again),
            self._thread(self._ask_now_and_then),
            self._one_by_one,
            self._thread(self._read_on),
            self._thread(self._stop_reading),
        ]
        if isinstance(self.judge, AsyncioJudge):
            deeds += [self._await, self._await_impatiently, self._stream, self._break_off]
        for _ in range(self.dice.randint(1, 4)):
            await asyncio.sleep(self.dice.choice([0.0, 0.0, 0.01, 0.5, 4.0, 40.0]))
            words = [self.world.draw_word() for _ in range(self.dice.choice([1, 1, 2, 5]))]
            deed = self.dice.choice(deeds)
            self.world.note(f"actor {number}: {getattr(deed, '__name__', 'deed')} {words}")
            try:
                await deed(words)
            except RewardcoreError as error:
                if not self.is_closed:
                    raise Wrong(f"an open judge raises {error!r}") from error
            if self.dice.random() < 0.01:
                self.world.note(f"actor {number}: close")
                self.is_closed = True
                await self.stage.start_thread(self.judge.close)

    # What a caller does.

    def _thread(self, deed: Callable[[list[Sample]], None]) -> Callable[[list[str]], Awaitable[None]]:
        async def do(words: list[str]) -> None:
            await self.stage.start_thread(lambda: deed(samples_of(words)))

        do.__name__ = deed.__name__.strip("_")
        return do

    def _judge_them(self, samples: list[Sample]) -> None:
        self._check(samples, self.judge.judge(samples))

    def _cancel_later(self, samples: list[Sample]) -> None:
        pending = self.judge.submit(samples)
        self.stage.sleep(self.dice.choice([0.0, 0.005, 0.1, 2.0]))
        if self.dice.random() < 0.5:
            with contextlib.suppress(TimeoutError):
                self._check(samples, pending.result(timeout=self.dice.choice([0.0, 0.01, 1.0])))
        pending.cancel()

    def _cancel_at_once_and_ask_again(self, samples: list[Sample]) -> None:
        self.judge.submit(samples).cancel()
        pending = self.judge.submit(samples)
        self.judge.submit(samples_of([self.world.draw_word({"quick": 1})])).cancel()
        self._check(samples, pending.result())

    def _ask_now_and_then(self, samples: list[Sample]) -> None:
        pending = self.judge.submit(samples)
        while True:
            with contextlib.suppress(TimeoutError):
                self._check(samples, pending.result(timeout=self.dice.choice([0.0, 0.02, 0.7])))
                return
            self.stage.sleep(0.3)

    def _read_on(self, samples: list[Sample]) -> None:
        samples = samples * 3
        seen = dict(self.judge.stream(samples))
        self._check(samples, [seen[index] for index in range(len(samples))])

    def _stop_reading(self, samples: list[Sample]) -> None:
        for _ in self.judge.stream(samples * 4):
            self.stage.sleep(self.dice.choice([0.0, 0.0, 0.1]))
            if self.dice.random() < 0.4:
                break

    async def _one_by_one(self, words: list[str]) -> None:
        """As verl calls: a call for each sample, all at once."""
        words = words + [self.world.draw_word() for _ in range(4)]
        await asyncio.gather(*(self._thread(self._judge_them)([word]) for word in words))

    async def _await(self, words: list[str]) -> None:
        self._check(samples_of(words), await self.judge.ajudge(samples_of(words)))

    async def _await_impatiently(self, words: list[str]) -> None:
        with contextlib.suppress(TimeoutError, CancelledError):
            await asyncio.wait_for(self.judge.ajudge(samples_of(words)), self.dice.choice([0.0, 0.01, 0.5]))

    async def _stream(self, words: list[str]) -> None:
        words = words * 3
        seen = {index: verdict async for index, verdict in self.judge.astream(samples_of(words))}
        self._check(samples_of(words), [seen[index] for index in range(len(words))])

    async def _break_off(self, words: list[str]) -> None:
        stream = self.judge.astream(samples_of(words * 4))
        async for _ in stream:
            break
        await stream.aclose()

    def _check(self, samples: list[Sample], verdicts: list[Verdict]) -> None:
        if len(verdicts) != len(samples) or any(verdict is None for verdict in verdicts):
            raise Wrong(f"{len(samples)} samples have {len(verdicts)} verdicts")
        for sample, verdict in zip(samples, verdicts, strict=True):
            if verdict.status == "ok" and verdict.score != score_of(sample.response):
                raise Wrong(f"the verdicts are out of order: {sample.response} has {verdict}")


def samples_of(words: list[str]) -> list[Sample]:
    return [Sample("p", word) for word in words]


def play(seed: int) -> str:
    """The history of this seed, if every promise was kept."""
    history = History(seed)
    try:
        history.play()
    except BaseException as error:
        error.add_note("\n".join([*history.world.history[-60:], f"seed {seed}: {error}"]))
        raise
    return "\n".join(history.world.history)

"""One seed, one history: callers of every kind, the real judge, driver and engine, and a world that resists."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from rewardcore import Judge, RewardcoreError, Sample
from rewardcore.calls import Driver, open_drivers
from rewardcore.http.cache import Cache, GuardedCache
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.drivers.remote import RemoteDriver
from rewardcore.http.drivers.sync import SyncDriver
from rewardcore.http.pace import Pace, Patience
from rewardcore.http.request import RequestBuilder
from rewardcore.http.retry import Blame
from rewardcore.judge import _judges
from tests.simulation.caches import CallersCache, ChildsCache, File, FileCache
from tests.simulation.callers import Callers
from tests.simulation.children import PlayedProcess
from tests.simulation.ears import Ears
from tests.simulation.invariants import Checked, check_end, check_instant
from tests.simulation.pacing import EVERY, check_pace
from tests.simulation.quota import draw_quota
from tests.simulation.remote import GRACE, check_remote, check_remote_end, open_pool, open_remote, played
from tests.simulation.stage import PROCESS, Stage
from tests.simulation.world import ENDPOINT, Air, Rubric, Transport, World, Wrong

#: How requests are driven, and how often that is drawn.
MODES = {"loop": 6, "auto": 3, "sync": 3, "remote": 5, "pool": 4}


class History(Callers):
    """Drawn and played by `play`; afterwards `world.history` tells what happened."""

    def __init__(self, seed: int) -> None:
        stage = Stage()
        dice = World(seed, stage, 0).dice
        (self.mode,) = dice.choices(list(MODES), list(MODES.values()))
        limit = {"auto": 12, "sync": 1}.get(self.mode) or dice.choice([1, 2, 2, 3, 6])
        super().__init__(stage, World(seed + 1_000_000, stage, limit), dice.choice([1.0, 8.0, 60.0]))
        dice = self.dice
        self.rubric = Rubric(self.world, self._ask_the_judge)
        self.finds = self.mode == "auto" or (self.mode == "remote" and dice.random() < 0.3)
        self.patience, self.max_retries = dice.choice([None, None, 1.0]), dice.choice([5, 2, 1])
        if dice.random() < 0.3:
            self.world.at_loss = lambda: stage.start_thread(self.close)
        self.world.has_trouble = dice.random() < 0.8
        if dice.random() < 0.25:
            self.world.quota = draw_quota(dice)
        self.cache_kind = dice.choice(["none", "memory", "memory", "file"])
        self.grace = GRACE if self.mode == "remote" else 0.0
        self.closes_in = {"remote": 5.0, "pool": 16.0}.get(self.mode, 1.0)
        if self.cache_kind == "file":
            self.file = File(dice, stage)
            self.closes_in += 70.0  # where another process keeps it locked
        self.driver: Driver | None = None
        self.ended_at = -1.0
        self.caches: list[Cache] = []
        self.here: list[tuple[Checked, LoopDriver, PlayedProcess | None]] = []
        chance = dice.choice([0.0, 0.0, 0.01, 0.1, 0.3])
        if chance:
            stage.interrupts = lambda: dice.choice([0.0, 0.0, 0.02, 0.3]) if dice.random() < chance else None
        self.ears = Ears(self.world, seed)
        self.world.note(
            f"{self.mode}, {limit} at once, {self.finds=}, deadline {self.deadline}, cache: {self.cache_kind}, "
            f"{self.world.quota}, patience {self.patience}"
        )

    def play(self) -> None:
        """Raises Wrong, or Deadlock, at the first broken promise."""
        Wrong.seen.clear()
        with contextlib.ExitStack() as around:
            around.enter_context(self.ears.listening())
            around.enter_context(played(self.stage))
            if self.file is not None:
                around.enter_context(self.file.opened())
            try:
                self.stage.play(self._everybody(), self._look)
            except BaseException as error:
                raise (Wrong.seen or [error])[0] from None
            finally:
                for driver in list(open_drivers):
                    if driver.clock is self.stage:
                        open_drivers.discard(driver)  # if it went wrong, nobody closes it any more
                for judge in list(_judges):
                    if judge._driver.clock is self.stage:
                        _judges.discard(judge)
                for cache in self.caches:
                    if isinstance(cache, FileCache):
                        cache.let_go()
        if self.closed_at == self.ended_at:
            self.ears.check_told()
        for wrong in Wrong.seen:
            raise wrong
        for engine, _, process in self.here:
            if process is None or process.has_finished:
                check_end(engine)

    def _look(self) -> None:
        for engine, driver, process in self.here:
            if process is None or process.runs:
                check_instant(engine, driver)
        if isinstance(self.driver, RemoteDriver):
            check_remote(self.driver, self.world)

    # How it is put together.

    def _open(self) -> None:
        if self.mode == "remote":
            driver: Driver = open_remote(self.world, self._drive)
        else:
            driver = self._drive()
        self.driver = driver
        sizes = (1, 1) if self.mode == "sync" else (4, 4)
        self.judge = Judge("simulated", lambda: driver, self.deadline, *sizes)
        self.ears.count(self.judge._losses)

    def _drive(self) -> LoopDriver:
        """Here, or in the process that runs this."""
        stage: Any = self.stage
        process: Any = PROCESS.get()
        air = self.world.air if process is None else Air(self.world, self.world.air.limit)
        engine = self._engine(air, process)
        pool = self.mode == "pool"
        parts = (
            stage,
            engine,
            (lambda: open_pool(self.world, self.rubric)) if pool else (lambda: Transport(air)),
            lambda engine: engine.cache and engine.cache.close(),
            stage,
        )
        driver = SyncDriver(self.deadline, *parts) if self.mode == "sync" else LoopDriver(*parts)  # type: ignore[arg-type]
        self.here.append((engine, driver, process))
        return driver

    def _engine(self, air: Air, process: PlayedProcess | None) -> Checked:
        engine = Checked(
            RequestBuilder(ENDPOINT, self.rubric),
            self.rubric,
            self._cache(process),
            Pace(air.limit, finds=self.finds, uniform=self.world.dice.random),
            Patience(self.patience),
            blame=Blame(self.max_retries),
            uniform=self.world.dice.random,
        )
        engine.world, engine.wire = self.world, air
        engine.resumed_at = lambda: max(self.stage.resumed_at, process.resumed_at if process is not None else 0.0)
        return engine

    def _cache(self, process: PlayedProcess | None) -> Cache | None:
        if self.cache_kind == "none":
            return None
        if self.cache_kind == "file" and self.file is not None:
            self.caches.append(FileCache(self.file, self.stage))
        else:
            self.caches.append(ChildsCache() if process is not None else GuardedCache(CallersCache(self.world)))
        return self.caches[-1]

    def _ask_the_judge(self) -> None:
        if not self.is_closed:
            self.judge.judge([Sample("p", "quick-0")])

    # What happens.

    async def _everybody(self) -> None:
        await self.stage.start_thread(self._open)
        actors = [self._actor(number) for number in range(self.dice.randint(2, 6))]
        await asyncio.gather(*actors)
        self.ended_at = self.stage.now()
        closers = [self.stage.start_thread(self.close) for _ in range(self.dice.choice([1, 1, 2]))]
        await asyncio.gather(*closers)
        if isinstance(driver := self.driver, RemoteDriver):
            await self.stage.start_thread(lambda: check_remote_end(driver))

    async def _actor(self, number: int) -> None:
        deeds = self.deeds()
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
            if self.dice.random() < 0.03:
                await self.stage.start_thread(self.close)


def play(seed: int) -> str:
    """The history of this seed, if every promise was kept."""
    if seed % EVERY == 0:
        check_pace(seed)
    history = History(seed)
    try:
        history.play()
    except BaseException as error:
        error.add_note("\n".join([*history.world.history[-80:], f"seed {seed}: {error}"]))
        raise
    return "\n".join(history.world.history)

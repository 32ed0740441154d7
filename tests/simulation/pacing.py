"""Liveness of the pace: whoever is asked by quick samples alone, and has no other temper, is not asked slowly.

Three kinds are drawn from the seed. An endpoint that tells its quota, compared with the same one that tells nothing;
one that refused a few for no reason, compared with itself before; and one that fails by chance, compared with a plain
loop that asks again.
"""

from __future__ import annotations

import asyncio
import random

from rewardcore import Judge, Sample
from rewardcore.calls import open_drivers
from rewardcore.http.drivers.loop import LoopDriver
from rewardcore.http.pace import Pace
from rewardcore.http.request import RequestBuilder
from rewardcore.judge import _judges
from tests.simulation.ears import Ears
from tests.simulation.invariants import Checked
from tests.simulation.quota import draw_quota
from tests.simulation.stage import Stage
from tests.simulation.world import ENDPOINT, Rubric, Transport, World, Wrong

#: A run takes at most so many times as long as what it is compared with, and so many seconds more.
TIMES, SECONDS = 1.3, 2.0
#: What is left of a few strays may be half as many at once, for a while.
TIMES_AFTER_STRAYS = 2.0
#: What a plain loop takes is reckoned, and the pace must first find out that it is chance.
TIMES_BY_CHANCE = 2.0
#: How many of the seeds play a pace beside their history: each costs as much as a history.
EVERY = 8


class Batches:
    """The same samples again and again, in a world without outages; `seconds` says how long each batch took."""

    def __init__(self, seed: int, limit: int, *, finds: bool) -> None:
        self.stage = Stage()
        self.world = world = World(seed, self.stage, limit)
        world.cap, world.outages = 10**6, []
        self.seconds: list[float] = []
        self.lost = 0
        self.ears = Ears(world, seed)
        self.finds = finds
        self.temper = "quick"

    def play(self, count: int, batches: int, pause: float = 0.0) -> Batches:
        stage, world = self.stage, self.world
        rubric = Rubric(world, lambda: None)
        pace = Pace(world.air.limit, finds=self.finds, uniform=world.dice.random)
        engine = Checked(RequestBuilder(ENDPOINT, rubric), rubric, None, pace, uniform=world.dice.random)
        engine.world, engine.wire, engine.resumed_at = world, world.air, lambda: 0.0
        driver = LoopDriver(stage, engine, lambda: Transport(world.air), lambda _: None, stage)  # type: ignore[arg-type]
        judge = Judge("paced", lambda: driver, 600.0, chunk_size=4)

        async def play_them() -> None:
            for _ in range(batches):
                await asyncio.sleep(pause)
                began = stage.now()
                told = await judge.ajudge(Sample("p", f"{self.temper}-{n % 6}", draw=n) for n in range(count))
                self.seconds.append(stage.now() - began)
                self.lost += sum(verdict.status != "ok" for verdict in told)
            world.history.extend(f"pace: {change}" for change in pace.changes)
            await stage.start_thread(judge.close)

        Wrong.seen.clear()
        with self.ears.listening():
            try:
                stage.play(play_them(), lambda: None)
            except BaseException as error:
                raise (Wrong.seen or [error])[0] from None
            finally:
                open_drivers.discard(driver)  # if it went wrong, nobody closes it any more
                _judges.discard(judge)
        for wrong in Wrong.seen:
            raise wrong
        return self


def check_pace(seed: int) -> None:
    """Raises Wrong where a batch takes longer than it may, or loses a sample."""
    dice = random.Random(seed)
    dice.choice([_check_quota, _check_strays, _check_chance])(seed, dice)


def _check_quota(seed: int, dice: random.Random) -> None:
    limit, finds = dice.choice([4, 12]), dice.random() < 0.5
    count, batches, pause = dice.choice([(30, 1, 0.0), (100, 1, 0.0), (200, 1, 0.0), (40, 4, 3.0), (40, 4, 20.0)])
    told, untold = (Batches(seed, limit, finds=finds) for _ in range(2))
    state = dice.getstate()
    for each in told, untold:
        dice.setstate(state)
        each.world.quota = draw_quota(dice)
        each.world.tells_quota = each is told
        each.play(count, batches, pause)
    what = f"{told.world.quota} tells it, and without: {sum(untold.seconds):.1f} s"
    # Once its quota was nearly used up, a bucket is asked evenly, also when it is full again.
    _compare(told, sum(told.seconds), TIMES * sum(untold.seconds) + SECONDS * batches, what)


def _check_strays(seed: int, dice: random.Random) -> None:
    """A few are refused, the last of them when nothing else is in the air; the next batch is as quick as the first."""
    batches = Batches(seed, dice.choice([4, 12]), finds=dice.random() < 0.5)
    count = dice.choice([30, 100, 200])
    first, last = count + dice.randrange(1, count // 2), 2 * count + 1
    batches.world.strays = {first: 0.0, last: dice.choice([0.5, 3.0]), last + 1: 0.0}
    batches.play(count, 4)
    before, after = batches.seconds[0], batches.seconds[2:]
    _compare(batches, max(after), TIMES_AFTER_STRAYS * before, f"a few strays, and before them {before:.2f} s")


def _check_chance(seed: int, dice: random.Random) -> None:
    """Each failure is asked again at once by a plain loop, which has the same number in the air."""
    batches = Batches(seed, dice.choice([4, 12]), finds=dice.random() < 0.5)
    share = batches.world.chance = dice.choice([0.02, 0.1, 0.2])
    clean = Batches(seed, batches.world.air.limit, finds=batches.finds)
    for each in batches, clean:
        each.temper = "slow"
        each.play(60, 5)
    seconds, most = sum(batches.seconds), TIMES_BY_CHANCE * sum(clean.seconds) / (1 - share) + SECONDS
    _compare(batches, seconds, most, f"{share:.0%} fail by chance, and without it {sum(clean.seconds):.1f} s")


def _compare(batches: Batches, seconds: float, most: float, what: str) -> None:
    wrong = ""
    if batches.lost:
        wrong = f"{what}: {batches.lost} samples are lost"
    elif seconds > most:
        wrong = f"{what}: {seconds:.2f} s, and {most:.2f} s are enough"
    if wrong:
        error = Wrong(wrong)
        error.add_note("\n".join([*batches.world.history[-40:], wrong]))
        raise error

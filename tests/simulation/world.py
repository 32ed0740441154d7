"""What a history meets: an endpoint, a cache and a rubric with tempers drawn from the seed, and what they have done.

Samples are known by a word: its first letters say how the endpoint, the cache or the rubric takes it. Whatever is done
to a sample is remembered, so that a failure without a cause is known for what it is.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import orjson

from rewardcore import MemoryCache, Sample
from rewardcore.failures import (
    BrokenReply,
    ConnectionFailed,
    Denied,
    Disconnected,
    Failure,
    Overloaded,
    RateLimited,
    Refused,
    Rejected,
    Transient,
    Truncated,
    WorkerDied,
)
from rewardcore.reply import Reply
from tests.simulation.stage import Stage

#: What a sample may be like, and how often it is drawn. The first two are fine.
TEMPERS = {
    "quick": 10,
    "slow": 4,
    "silent": 3,
    "moody": 6,
    "rejected": 1,
    "defective": 1,
    "denied": 0.2,
    "unwritten": 1,
    "unread": 1,
    "uncached": 1,
    "unkept": 1,
    "nested": 2,
}
PASSING = (Transient, RateLimited, ConnectionFailed, Disconnected, BrokenReply, WorkerDied)
FINAL = (Rejected, Refused, Truncated)


class Wrong(AssertionError):
    """A promise was broken; the message says which. `seen` has it, also where the engine's last line of defence did."""

    seen: ClassVar[list[Wrong]] = []

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.seen.append(self)


class World:
    """`causes` is what was done to each word; `told` is everything worth printing, with its time."""

    def __init__(self, seed: int, stage: Stage, limit: int) -> None:
        self.dice = random.Random(seed)
        self.stage = stage
        self.limit = limit
        self.history: list[str] = []
        self.causes: dict[str, set[str]] = {}
        self.in_the_air: Counter[bytes] = Counter()
        self.dying = 0
        self.replies = 0
        self.breaker_opened = False
        self.cache: Cache | None = None
        self.looking_at = ""
        # Now and then the endpoint is down for all, or bears fewer at once than it is asked for.
        self.cap = self.dice.choice([1, 2, 4, 100, 100, 100])
        self.outages: list[tuple[float, float, type[Failure]]] = []
        while self.dice.random() < 0.5:
            start = self.dice.choice([0.0, 0.3, 2.0, 20.0])
            kind = self.dice.choice([Transient, Overloaded, RateLimited, ConnectionFailed, Disconnected])
            self.outages.append((start, start + self.dice.choice([0.2, 2.0, 25.0, 45.0]), kind))

    def note(self, text: str) -> None:
        self.history.append(f"{self.stage.now():9.3f}  {text}")

    def blame(self, word: str, cause: str) -> str:
        self.causes.setdefault(word, set()).add(cause)
        return cause

    def draw_word(self, kinds: dict[str, float] = TEMPERS) -> str:
        (temper,) = self.dice.choices(list(kinds), list(kinds.values()))
        return f"{temper}-{self.dice.randrange(6)}"

    # The endpoint.

    def arrive(self, body: bytes) -> tuple[str, float, Failure | Exception | Reply]:
        """A request goes out: its word, the seconds until its answer, and the answer. It must be due."""
        word = word_of(body)
        temper = word.split("-")[0]
        is_full = sum(self.in_the_air.values()) >= self.cap
        self.in_the_air[body] += 1
        if sum(self.in_the_air.values()) - self.dying > self.limit:
            raise Wrong(f"{sum(self.in_the_air.values())} requests in flight where {self.limit} are allowed")
        seconds = {"slow": 3.0, "silent": 1e6}.get(temper, 0.02) * self.dice.uniform(0.5, 2.0)
        self.replies += 1
        answer: Failure | Exception | Reply = Reply(f"{score_of(word)} reply {self.replies} to {word}")
        if temper == "moody" and self.dice.random() < 0.6:
            kind = self.dice.choice(PASSING)
            answer = kind(self.blame(word, f"mood {self.replies}"))
            if kind is RateLimited and self.dice.random() < 0.3:
                answer.retry_after = self.dice.choice([0.5, 5.0, 1e4])
        elif temper == "rejected":
            answer = self.dice.choice(FINAL)(self.blame(word, f"no {self.replies}"))
        elif temper == "denied":
            self.breaker_opened = True
            answer = Denied("wrong key")
        elif temper == "defective":
            answer = ZeroDivisionError(self.blame(word, f"defect {self.replies}"))
        down = [kind for start, end, kind in self.outages if start <= self.stage.now() < end]
        if down or is_full:
            answer = (down[0] if down else Overloaded)(self.blame(word, "nobody's fault"))
            seconds = self.dice.choice([0.0, 0.02, 0.5])
        self.note(f"sent {word}, answered in {seconds:.3f} s by {answer!r}")
        return word, seconds, answer

    def leave(self, body: bytes) -> None:
        self.in_the_air[body] -= 1
        self.in_the_air += Counter()


class Transport:
    """A request that is cancelled may take a moment to be gone."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def send(self, body: bytes) -> Reply:
        world = self._world
        word, seconds, answer = world.arrive(body)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            world.note(f"cancelled {word}")
            world.dying += 1
            await asyncio.sleep(world.dice.choice([0.0, 0.0, 0.3]))
            world.dying -= 1
            raise
        finally:
            world.leave(body)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        pass


class Cache(MemoryCache):
    """Raises for some words. What it has kept must never be asked for again."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.kept: set[bytes] = set()

    def get(self, key: bytes) -> Reply | None:
        word = self._world.looking_at
        if word.startswith("uncached"):
            raise KeyError(self._world.blame(word, "the cache's get raised"))
        return super().get(key)

    def put(self, key: bytes, reply: Reply, material: bytes) -> None:
        word = word_of(material)
        if word.startswith("unkept"):
            raise OSError(self._world.blame(word, "the cache's put raised"))
        super().put(key, reply, material)
        self.kept.add(material.split(b'"request":', 1)[1][:-1])


class Rubric:
    """Scores by the word. It raises for some, and for some it asks another judge for a second opinion."""

    def __init__(self, world: World, independent: bool, second: Callable[[str], float] | None) -> None:
        self._world = world
        self._second = second
        self.independent = independent

    def messages(self, sample: Sample) -> list[dict[str, object]]:
        self._world.looking_at = sample.response
        if sample.response.startswith("unwritten"):
            raise SystemExit(self._world.blame(sample.response, "messages exits"))
        return [{"role": "user", "content": sample.response}]

    def parse(self, text: str) -> float:
        score, word = text.split()[0], text.split()[-1]
        if word.startswith("unread"):
            raise asyncio.CancelledError(self._world.blame(word, "parse is cancelled"))
        if word.startswith("nested") and self._second is not None:
            return self._second(word)
        return float(score)


def word_of(document: bytes) -> str:
    return document.split(b'"content":"')[1].split(b'"')[0].decode()


def score_of(word: str) -> float:
    return (orjson.dumps(word).__len__() * 7 + int(word.split("-")[1])) / 100

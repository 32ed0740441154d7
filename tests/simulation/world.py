"""What a history meets: an endpoint and a rubric with tempers drawn from the seed, and what they have done.

Samples are known by a word: its first letters say how the endpoint, the cache or the rubric takes it. Whatever is done
to a sample is remembered, so that a failure without a cause is known for what it is.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from rewardcore import Endpoint, Sample
from rewardcore.failures import (
    BrokenReply,
    ConnectionFailed,
    Denied,
    Disconnected,
    Failure,
    Forbidden,
    Overloaded,
    RateLimited,
    Refused,
    Rejected,
    Transient,
    Truncated,
    WorkerDied,
    WrongPath,
)
from rewardcore.http.reading import ReplyReader
from rewardcore.reply import Reply
from tests.simulation.quota import Bucket, Window
from tests.simulation.stage import PROCESS, Stage

if TYPE_CHECKING:
    from tests.simulation.children import PlayedChild, PlayedProcess

ENDPOINT = Endpoint("http://judge.test/v1", "judge", api_key_env=None)
#: What a sample may be like, and how often it is drawn. The first two are fine.
TEMPERS = {
    "quick": 10,
    "slow": 4,
    "silent": 3,
    "moody": 6,
    "rejected": 1,
    "defective": 1,
    "denied": 0.5,
    "filtered": 1,
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
    """`causes` is what was done to each word; `history` is everything worth printing, with its time."""

    def __init__(self, seed: int, stage: Stage, limit: int) -> None:
        self.dice = random.Random(seed)
        self.stage = stage
        self.history: list[str] = []
        self.causes: dict[str, set[str]] = {}
        self.airs: list[Air] = []
        self.air = Air(self, limit)
        self.replies = 0
        self.looking_at = ""
        self.has_trouble = True  # with its child processes
        self.children: list[PlayedChild] = []
        self.processes: list[PlayedProcess] = []
        self.at_loss: Callable[[], object] | None = None  # what a caller does when it hears of the first
        self.losses = self.babble = 0  # of child processes, and what they said that was nonsense
        # Now and then the endpoint is down for all, bears fewer at once than it is asked for, or has a quota.
        self.cap = self.dice.choice([1, 2, 4, 100, 100, 100])
        self.quota: Window | Bucket | None = None
        self.tells_quota = True
        self.chance = 0.0  # that a request fails for no reason
        self.strays: dict[int, float] = {}  # which requests are refused for no reason, and after how many seconds
        self._reader = ReplyReader(ENDPOINT, stage.now)
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

    def answer(self, word: str, is_full: bool) -> tuple[float, Failure | Exception | Reply]:
        """The seconds until its answer, and the answer."""
        temper, now = word.split("-")[0], self.stage.now()
        seconds = {"slow": 3.0, "silent": 1e6}.get(temper, 0.02) * self.dice.uniform(0.5, 2.0)
        self.replies += 1
        down = [kind for start, end, kind in self.outages if start <= now < end]
        if down or is_full:
            kind = down[0] if down else Overloaded
            return self.dice.choice([0.0, 0.02, 0.5]), kind(self.blame(word, "nobody's fault"))
        opens_in = self.quota.opens_in(now) if self.quota is not None else 0.0
        if opens_in:
            return 0.0, self._read(429, self.blame(word, "nobody's fault"), opens_in)
        if self.replies in self.strays or (self.chance and self.dice.random() < self.chance):
            seconds = self.strays.get(self.replies, 0.0)
            return seconds, self.dice.choice([Transient, Overloaded])(self.blame(word, "nobody's fault"))
        answer: Failure | Exception | Reply = self._read(200, f"{score_of(word)} reply {self.replies} to {word}")
        if temper == "moody" and self.dice.random() < 0.6:
            passing = self.dice.choice(PASSING)
            answer = passing(self.blame(word, f"mood {self.replies}"))
            if passing is RateLimited and self.dice.random() < 0.3:
                answer.retry_after = self.dice.choice([0.5, 5.0, 1e4])
        elif temper == "rejected":
            answer = self.dice.choice(FINAL)(self.blame(word, f"no {self.replies}"))
        elif temper == "denied":
            answer = Denied("wrong key")
        elif temper == "filtered":
            answer = self.dice.choice([Forbidden, WrongPath])(self.blame(word, f"filter {self.replies}"))
        elif temper == "defective":
            answer = ZeroDivisionError(self.blame(word, f"defect {self.replies}"))
        return seconds, answer

    def _read(self, status: int, text: str, opens_in: float = 0.0) -> Reply | Failure:
        """As the real reader reads it, with what the endpoint says of its quota."""
        headers: dict[str, str] = {}
        if self.quota is not None and self.tells_quota:
            headers = dict(self.quota.headers(self.stage.now()))
            if opens_in and self.dice.random() < 0.5:
                headers["retry-after"] = f"{opens_in:.3f}"
        document = {"choices": [{"index": 0, "message": {"content": text}}], "error": {"message": text}}
        try:
            reply = self._reader.read(status, headers, orjson.dumps(document))
        except Failure as failure:
            return failure
        if self.quota is not None and reply.quota is not None and (wrong := self.quota.check(reply.quota)):
            raise Wrong(wrong)
        return reply


class Air:
    """The requests of one judge that are on the wire."""

    def __init__(self, world: World, limit: int) -> None:
        self.world = world
        self.limit = limit
        self.sent = 0
        self.wire: Counter[bytes] = Counter()
        world.airs.append(self)

    def arrive(self, body: bytes) -> tuple[str, float, Failure | Exception | Reply]:
        """A request goes out: its word, the seconds until its answer, and the answer. It must be due."""
        world, word = self.world, word_of(body)
        is_full = sum(air.wire.total() for air in world.airs) >= world.cap
        self.sent += 1
        self.wire[body] += 1
        if self.wire.total() > self.limit:
            raise Wrong(f"{self.wire.total()} requests in flight where {self.limit} are allowed")
        seconds, answer = world.answer(word, is_full)
        world.note(f"sent {word}, answered in {seconds:.3f} s by {answer!r:.80}")
        return word, seconds, answer

    def leave(self, body: bytes) -> None:
        self.wire[body] -= 1
        self.wire += Counter()


class Transport:
    """A request that is cancelled may take a moment to be gone; those of a process that is dead are gone with it."""

    def __init__(self, air: Air) -> None:
        self._air = air
        self._is_cut = False
        process: Any = PROCESS.get()
        if process is not None:
            process.at_death.append(self._cut)

    def _cut(self) -> None:
        self._is_cut = True
        self._air.wire.clear()

    async def send(self, body: bytes) -> Reply:
        world = self._air.world
        word, seconds, answer = self._air.arrive(body)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            world.note(f"cancelled {word}")
            await asyncio.sleep(world.dice.choice([0.0, 0.0, 0.3]))
            raise
        finally:
            if not self._is_cut:
                self._air.leave(body)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        pass


class Rubric:
    """Scores by the word. It raises for some, and for some it asks the judge that waits for it, or tries to."""

    def __init__(self, world: World, asks: Callable[[], object]) -> None:
        self._world = world
        self._asks = asks

    def messages(self, sample: Sample) -> list[dict[str, object]]:
        self._world.looking_at = sample.response
        if sample.response.startswith("unwritten"):
            raise SystemExit(self._world.blame(sample.response, "messages exits"))
        if sample.response in ("nested-0", "nested-1"):
            self._world.blame(sample.response, "this sample's messages: AsksJudge")
            self._asks()
        return [{"role": "user", "content": sample.response}]

    def parse(self, text: str) -> float:
        score, word = text.split()[0], text.split()[-1]
        if word.startswith("unread"):
            raise asyncio.CancelledError(self._world.blame(word, "parse is cancelled"))
        if word.startswith("nested"):
            self._world.blame(word, "the rubric's parse raised AsksJudge")
            self._asks()
        return float(score)


def word_of(document: bytes) -> str:
    return document.split(b'"content":"')[1].split(b'"')[0].decode()


def score_of(word: str) -> float:
    return (orjson.dumps(word).__len__() * 7 + int(word.split("-")[1])) / 100

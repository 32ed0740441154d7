"""The sync mode: one request at a time, in the caller's thread, when the caller asks for the result.

It is the baseline that every speed-up is measured against, and the simplest way to judge a few samples.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from .crew import Batch, Crew
from .endpoint import Endpoint
from .engine import Call, Engine, Flight
from .failures import Failure, JudgeClosed
from .httpx_transport import HttpxTransport
from .judge import Judge
from .reply import Answer, grade
from .settings import Settings
from .stats import Stats


def open(endpoint: Endpoint, **options: Any) -> Judge:
    settings = Settings(endpoint, **options)
    return Judge(settings.name, lambda: SyncCrew(settings), settings.deadline)


class SyncCrew(Crew):
    """Each call has an engine of its own, so that whoever waits for one batch never works on another."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.clock)
        self._settings = settings
        self._engine = settings.new_engine()
        self._engines: dict[Call, Engine] = {}
        self._transport = HttpxTransport(settings.endpoint, settings.clock)
        self._turn = threading.RLock()  # one request at a time, from however many threads

    def begin(self, call: Call) -> None:
        call.deadline = math.inf  # its time runs from when somebody waits for it
        parts = self._engine
        engine = Engine(parts.builder, parts.rubric, parts.cache, parts.limit, parts.budget, parts.counters)
        engine.open(call)
        self._engines[call] = engine

    def wait(self, batch: Batch, timeout: float | None) -> None:
        call, clock, engine = batch.call, self.clock, self._engines.get(batch.call)
        if engine is None:  # another thread has just seen to it
            return
        give_up = math.inf if timeout is None else clock.now() + timeout
        call.deadline = min(call.deadline, clock.now() + self._settings.deadline)
        while not batch.future.done():
            now = clock.now()
            left = min(call.deadline, give_up) - now
            if now >= call.deadline:
                engine.expire(call)
            elif left <= 0.0:
                raise TimeoutError
            elif self._turn.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                try:
                    pause = self._step(engine)
                finally:
                    self._turn.release()
                if pause and not batch.future.done():
                    clock.sleep(min(pause, left))
        self._engines.pop(call, None)

    def _step(self, engine: Engine) -> float:
        """One request further; or the seconds until there may be one."""
        step = engine.take(self.clock.now())
        if not isinstance(step, Flight):
            return step or 0.0
        engine.settle(step, self._attempt(engine, step), self.clock.now())
        return 0.0

    def _attempt(self, engine: Engine, flight: Flight) -> Answer:
        try:
            return grade(self._settings.rubric, self._transport.send(flight.request.body, flight.deadline))
        except Failure as failure:
            return Answer(failure=failure)
        except BaseException as error:  # Ctrl-C: the flight is over all the same
            engine.settle(flight, Answer(failure=JudgeClosed(f"interrupted by {error!r}")), self.clock.now())
            raise

    def abandon(self, call: Call) -> None:
        with self._turn:
            if (engine := self._engines.pop(call, None)) is not None:
                engine.abandon(call)

    def close(self) -> None:
        with self._turn:
            for engine in list(self._engines.values()):
                engine.close()
            self._engines.clear()
            self._transport.close()
            self._settings.close_cache(self._engine.cache)

    def stats(self) -> Stats:
        return self._engine.counters.snapshot()

"""The process mode: a pool of spawned workers, each with a keep-alive client of its own.

It is the comparison that the benchmarks need, and right for rubrics whose `parse` is heavy: a reply is parsed in the
worker that fetched it. A thread stands for each worker: it takes a flight from the engine, passes it through the
worker's pipe and waits there for the answer, so nothing polls. A worker that dies is replaced and its flight retried.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from .asyncio_judge import LATE_SECONDS
from .child import check_picklable, end, spawn
from .clock import SYSTEM_CLOCK
from .crew import Crew
from .endpoint import Endpoint
from .engine import Call, Flight
from .failures import ConfigurationError, Failure, WorkerDied
from .httpx_transport import HttpxTransport
from .judge import Judge
from .reply import Answer, grade
from .rubrics import Rubric
from .settings import Settings
from .stats import Stats


def open(
    endpoint: Endpoint,
    *,
    workers: int | None = None,
    worker_setup: Callable[[], object] | None = None,
    **options: Any,
) -> Judge:
    settings = Settings(endpoint, **options)
    if workers is None:
        limit = settings.max_concurrent
        workers = 4 * (os.cpu_count() or 1) if limit == "auto" else min(limit, 4 * (os.cpu_count() or 1))
    elif type(workers) is not int or workers < 1:
        raise ConfigurationError(f"workers must be a whole number above 0, not {workers!r}")
    check_picklable("worker_setup", worker_setup)
    return Judge(settings.name, functools.partial(ProcessCrew, settings, workers, worker_setup), settings.deadline)


class ProcessCrew(Crew):
    def __init__(self, settings: Settings, workers: int, worker_setup: Callable[[], object] | None) -> None:
        super().__init__(settings.clock)
        self._settings = settings
        self._engine = settings.new_engine()
        self._arguments = (settings.endpoint, settings.rubric, worker_setup)
        check_picklable("endpoint", settings.endpoint)
        check_picklable("rubric", settings.rubric)
        self._most = workers
        self._work = threading.Condition()  # guards the engine; notified when there may be something to take
        self._threads: list[threading.Thread] = []
        self._timers: list[threading.Timer] = []
        self._workers: dict[_Worker, Flight | None] = {}
        self._idle = 0
        self._closing = False

    def begin(self, call: Call) -> None:
        with self._work:
            self._engine.open(call)
            if self._closing:
                self._engine.close()
                return
            timer = threading.Timer(call.deadline - self.clock.now(), self._expire, (call,))
            timer.name, timer.daemon, call.cancel_timer = "rewardcore-deadline", True, timer.cancel
            timer.start()
            self._timers = [timer, *(timer for timer in self._timers if timer.is_alive())]
            self._make_room(len(call.fresh))
            wanted = min(len(call.fresh) - self._idle, self._most - len(self._threads))
            for _ in range(wanted):
                thread = threading.Thread(target=self._serve, name="rewardcore-worker", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._work.notify_all()

    def _make_room(self, wanted: int) -> None:
        """A late flight may go on for the cache's sake, but not in the place of a sample that somebody waits for."""
        missing = wanted - self._idle - (self._most - len(self._threads))
        late = [worker for worker, flight in self._workers.items() if flight is not None and not flight.is_wanted]
        for worker in late[: max(0, missing)]:
            worker.interrupt()

    def abandon(self, call: Call) -> None:
        with self._work:
            if call.cancel_timer is not None:
                call.cancel_timer()
            self._engine.abandon(call)

    def _expire(self, call: Call) -> None:
        with self._work:
            self._engine.expire(call)

    def stats(self) -> Stats:
        with self._work:
            return self._engine.counters.snapshot()

    def close(self) -> None:
        with self._work:
            self._closing = True
            self._engine.close()
            self._work.notify_all()
        for worker in list(self._workers):
            worker.interrupt(for_good=True)
        for thread in (*self._threads, *self._timers):
            thread.join()
        self._settings.close_cache(self._engine.cache)

    def _serve(self) -> None:
        """One thread, one worker process: take, pass on, settle."""
        worker = _Worker(self._arguments)
        try:
            while (flight := self._next_flight(worker)) is not None:
                answer = worker.attempt(flight, flight.deadline + LATE_SECONDS - self.clock.now())
                with self._work:
                    self._engine.settle(flight, answer, self.clock.now())
                    self._work.notify_all()
        finally:
            worker.end()

    def _next_flight(self, worker: _Worker) -> Flight | None:
        with self._work:
            self._workers[worker] = None
            while not self._closing:
                allowed = self._engine.counters.in_flight < self._engine.limit.current
                step = self._engine.take(self.clock.now()) if allowed else None
                if isinstance(step, Flight):
                    self._workers[worker] = step
                    return step
                self._idle += 1
                self._work.wait(step)
                self._idle -= 1
            return None


class _Worker:
    """A child that sends requests, started at the first one and again after a death."""

    def __init__(self, arguments: tuple[Endpoint, Rubric, Callable[[], object] | None]) -> None:
        self._arguments = arguments
        self._child: tuple[BaseProcess, Connection] | None = None
        self._interrupted = False

    def attempt(self, flight: Flight, seconds: float) -> Answer:
        try:
            if self._child is None:
                self._child = spawn(_answer_requests, *self._arguments)
            if self._interrupted:
                raise EOFError
            _, connection = self._child
            connection.send((flight.request.body, seconds))
            answer: Answer = connection.recv()
        except (EOFError, OSError):
            self.end()
            return Answer(failure=WorkerDied("the worker process that held this sample died"))
        except Exception as error:  # such as an error of the rubric's own that pickle cannot read back
            return Answer(failure=Failure(f"the worker's answer did not arrive: {type(error).__name__}: {error}"))
        return answer

    def interrupt(self, for_good: bool = False) -> None:
        """From another thread: the worker's pipe ends, and with it the attempt that waits on it."""
        self._interrupted = self._interrupted or for_good
        if (child := self._child) is not None:
            with contextlib.suppress(ValueError, OSError):
                child[0].terminate()

    def end(self) -> None:
        if self._child is not None:
            (process, connection), self._child = self._child, None
            end(process)
            connection.close()


def _answer_requests(
    connection: Connection, endpoint: Endpoint, rubric: Rubric, worker_setup: Callable[[], object] | None
) -> None:
    """The worker's side, until the pipe ends; or the parent, which a worker that waits for a reply would not notice."""
    threading.Thread(target=_end_with_the_parent, name="rewardcore-parent", daemon=True).start()
    if worker_setup is not None:
        worker_setup()
    transport = HttpxTransport(endpoint, SYSTEM_CLOCK)
    try:
        while True:
            body, seconds = connection.recv()
            try:
                answer = grade(rubric, transport.send(body, SYSTEM_CLOCK.now() + seconds))
            except Failure as failure:
                answer = Answer(failure=failure)
            connection.send(answer)
    finally:
        transport.close()


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

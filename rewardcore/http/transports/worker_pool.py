"""The process mode's transport: a pool of spawned workers that fetch and parse, each with a keep-alive client.

It is the comparison that the benchmarks need, and right for rubrics whose `parse` is heavy. The loop driver carries
it, so it has the guarantees of every other mode; here is only how a request reaches a worker and its answer
comes back, by future. A request that is given up is aborted in its worker, which then takes the next one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

from ...calls import at_work
from ...failures import Failure, WorkerDied
from ...reply import Answer
from ...rubrics import Rubric
from ...rubrics.rubric import grade, reads_sample
from ..endpoint import Endpoint
from ..processes import OpenChild, SpawnedChild

#: What tells a worker to let go of its request.
_GIVE_UP = signal.SIGUSR1
#: How long it may take to; a rubric that is at work in it cannot be interrupted.
_LETTING_GO, _SIGNALS = 5.0, 50

WorkerSetup = Callable[[], object]


def workers_of(endpoint: Endpoint, rubric: Rubric, setup: WorkerSetup | None) -> OpenChild:
    """Children that answer requests to this endpoint."""
    return lambda listener: SpawnedChild(listener, _answer_requests, endpoint, rubric, setup)


class WorkerPool:
    """Workers are started when they are needed. No more requests come at once than there may be workers."""

    def __init__(self, open_child: OpenChild) -> None:
        self._open_child = open_child
        self._workers: dict[_Worker, None] = {}  # in the order in which they were started
        self._idle: list[_Worker] = []

    def starting(self) -> Awaitable[None] | None:
        """A worker may import whatever it likes before it is up: that is no time of the endpoint's."""
        return None if self._idle and self._idle[-1].child.ready.done() else self._start()

    async def _start(self) -> None:
        worker = self._take()
        try:
            await asyncio.wait([worker.child.ready])
        finally:
            self._idle.append(worker)  # given up meanwhile, it goes on starting, and is the next one's

    async def send(self, body: bytes) -> Answer:
        worker = self._take()
        try:
            return await worker.ask(body)
        finally:
            if worker.child.reason:
                await self._bury(worker)
            else:
                self._idle.append(worker)

    def _take(self) -> _Worker:
        if self._idle:
            return self._idle.pop()
        worker = _Worker(self._open_child)
        self._workers[worker] = None
        return worker

    async def _bury(self, worker: _Worker) -> None:
        """Whoever waits for it may be cancelled; it is of this pool until it is gone."""
        await worker.child.end()
        self._workers.pop(worker, None)

    async def close(self) -> None:
        await asyncio.gather(*(worker.child.end() for worker in self._workers))


class _Worker:
    """One question at a time, one answer for each. It is the listener of its child."""

    def __init__(self, open_child: OpenChild) -> None:
        self._answer: asyncio.Future[Answer] | None = None
        self.child = open_child(self)

    async def ask(self, body: bytes) -> Answer:
        if not self.child.ready.done():
            await asyncio.wait([self.child.ready])
        if self.child.reason:
            raise WorkerDied(self.child.reason)
        self._answer = answer = asyncio.get_running_loop().create_future()
        self.child.write(body)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            for _ in range(_SIGNALS):  # one that comes before the worker has read its question is not heeded
                if answer.done():
                    break
                self.child.signal(_GIVE_UP)
                await asyncio.wait([answer], timeout=_LETTING_GO / _SIGNALS)  # cancelled again, it is closed anyway
            if not answer.done():
                self.child.give_up("the worker process did not let go of a request that was given up")
            raise

    def received(self, message: bytes) -> None:
        if self._answer is None or self._answer.done():
            raise ValueError("an answer that nobody asked for")
        try:
            answer = pickle.loads(message)
            assert isinstance(answer, Answer), f"{answer!r:.40} is no answer"
        except Exception as error:  # such as an error of the rubric's own that pickle cannot read back
            words = f"the worker's answer did not arrive: {type(error).__name__}: {error}"
            answer = Answer(failure=Failure(words))
        self._answer.set_result(answer)

    def lost(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Answer(failure=WorkerDied(reason)))


def _answer_requests(
    connection: Connection, endpoint: Endpoint, rubric: Rubric, setup: WorkerSetup | None
) -> Callable[[], None]:
    """The worker's side, in its main thread, which a signal interrupts when a request is given up."""
    from .httpx_client import BlockingHttpx

    if setup is not None:
        setup()
    transport, by_sample = BlockingHttpx(endpoint), reads_sample(rubric)
    sending = False

    def interrupt(*_: object) -> None:
        if sending:
            raise WorkerDied("the request was given up")

    signal.signal(_GIVE_UP, interrupt)
    # What an interrupted client had opened is closed as it is forgotten: nobody else can.
    warnings.filterwarnings("ignore", "unclosed <(socket|ssl)", ResourceWarning)

    def answer(body: bytes) -> Answer:
        nonlocal sending
        try:
            sending = True
            reply = transport.send(body)
            sending = False
            return Answer(reply) if by_sample else grade(rubric, reply)
        except WorkerDied as given_up:
            sending = False
            transport.renew()
            return Answer(failure=given_up)
        except Failure as failure:
            return Answer(failure=failure)
        except BaseException as error:
            return Answer(failure=Failure(f"{type(error).__name__}: {error}"))
        finally:
            sending = False

    def work() -> None:
        threading.Thread(target=_end_with_the_parent, name="rewardcore-parent", daemon=True).start()
        with at_work():
            while True:
                packed = _pack(answer(connection.recv_bytes()))
                connection.send_bytes(packed)

    return work


def _pack(answer: Answer) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:
        return pickle.dumps(Answer(failure=Failure(f"the worker's answer cannot travel: {error}")))


def _end_with_the_parent() -> None:
    """A worker that waits for a reply would not notice that its pipe has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

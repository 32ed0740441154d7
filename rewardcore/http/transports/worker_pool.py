"""The process mode's transport: a pool of spawned workers that fetch and parse, each with a keep-alive client.

It is the comparison that the benchmarks need, and right for rubrics whose `parse` is heavy. The loop driver carries
it, so it has the guarantees of every other mode; here is only how a request reaches a worker and its answer
comes back, by future. A request that is given up is aborted in its worker, which then takes the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from ...failures import Failure, WorkerDied
from ...reply import Answer
from ...rubrics import Rubric
from ...rubrics.rubric import grade
from ..endpoint import Endpoint
from ..processes import PATIENCE_SECONDS, READY, end, spawn

#: The head of a message: its length, as multiprocessing's Connection writes it at the other end.
_HEAD = struct.Struct("!i")
#: What tells a worker to let go of its request.
_GIVE_UP = signal.SIGUSR1

WorkerSetup = Callable[[], object]


class WorkerPool:
    """Workers are started when they are needed. No more requests come at once than there may be workers."""

    def __init__(self, endpoint: Endpoint, rubric: Rubric, setup: WorkerSetup | None) -> None:
        self._arguments = (endpoint, rubric, setup)
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []

    async def send(self, body: bytes) -> Answer:
        if self._idle:
            worker = self._idle.pop()
        else:
            worker = _Worker(self._arguments)
            self._workers.add(worker)
        try:
            return await worker.ask(body)
        finally:
            if worker.is_dead:
                await asyncio.shield(self._dismiss(worker))
            else:
                self._idle.append(worker)

    async def close(self) -> None:
        await asyncio.gather(*map(self._dismiss, list(self._workers)))

    async def _dismiss(self, worker: _Worker) -> None:
        self._workers.discard(worker)
        await worker.end()


class _Worker(asyncio.Protocol):
    """One child at the other end of a socket: one question at a time, one answer for each."""

    def __init__(self, arguments: tuple[Endpoint, Rubric, WorkerSetup | None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ready.add_done_callback(lambda ready: ready.exception())  # seen, though nobody may have asked yet
        self._process: BaseProcess | None = None
        self._transport: asyncio.Transport | None = None
        self._starting = self._loop.create_task(self._start(arguments))

    @property
    def is_dead(self) -> bool:
        return self._ready.done() and (self._ready.exception() is not None or self._transport is None)

    async def ask(self, body: bytes) -> Answer:
        await asyncio.shield(self._ready)
        if self._transport is None:
            raise WorkerDied("the worker process died before it was asked")
        self._answer = answer = self._loop.create_future()
        self._transport.write(_HEAD.pack(len(body)) + body)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if self._process is not None and self._process.pid is not None and not answer.done():
                os.kill(self._process.pid, _GIVE_UP)
            await asyncio.wait([answer], timeout=PATIENCE_SECONDS)  # cancelled again, it is closed anyway
            if not answer.done() or answer.exception() is not None:
                self._lost("the worker process did not let go of a request that was given up")
            raise

    async def end(self) -> None:
        """Without a thread: at the interpreter's exit there are none to be had."""
        await asyncio.wait([self._starting])
        self._lost("the judge was closed")
        process, self._process = self._process, None
        if process is not None:
            gone = asyncio.Event()
            self._loop.add_reader(process.sentinel, gone.set)
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), PATIENCE_SECONDS)
            self._loop.remove_reader(process.sentinel)
            end(process)

    async def _start(self, arguments: tuple[Endpoint, Rubric, WorkerSetup | None]) -> None:
        try:
            self._process, connection = spawn(_answer_requests, *arguments)
            with connection:
                end_here = socket.socket(fileno=os.dup(connection.fileno()))
            self._transport, _ = await self._loop.create_unix_connection(lambda: self, sock=end_here)
        except Exception as error:
            self._lost(f"a worker process could not start: {type(error).__name__}: {error}")

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _HEAD.size:
            end = _HEAD.size + _HEAD.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            message = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            self._receive(message)

    def _receive(self, message: bytes) -> None:
        if not self._ready.done():
            if message == READY:
                self._ready.set_result(None)
            else:
                self._lost(f"a worker process could not start: {message.decode()}")
        elif self._answer is not None and not self._answer.done():
            try:
                self._answer.set_result(pickle.loads(message))
            except Exception as error:  # such as an error of the rubric's own that pickle cannot read back
                words = f"the worker's answer did not arrive: {type(error).__name__}: {error}"
                self._answer.set_result(Answer(failure=Failure(words)))

    def connection_lost(self, error: Exception | None) -> None:
        started = self._ready.done()
        self._lost(f"the worker process {'that held this sample died' if started else 'died while it started'}")

    def _lost(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        for future in (self._ready, self._answer):
            if future is not None and not future.done():
                future.set_exception(WorkerDied(reason))
        if self._answer is not None:
            self._answer.exception()  # seen


def _answer_requests(
    connection: Connection, endpoint: Endpoint, rubric: Rubric, setup: WorkerSetup | None
) -> Callable[[], None]:
    """The worker's side, in its main thread, which a signal interrupts when a request is given up."""
    from .httpx_client import BlockingHttpx

    if setup is not None:
        setup()
    transport = BlockingHttpx(endpoint)
    sending = False

    def interrupt(*_: object) -> None:
        if sending:
            raise WorkerDied("the request was given up")

    signal.signal(_GIVE_UP, interrupt)

    def answer(body: bytes) -> Answer:
        nonlocal sending
        try:
            sending = True
            reply = transport.send(body)
            sending = False
            return grade(rubric, reply)
        except Failure as failure:
            return Answer(failure=failure)
        except BaseException as error:
            return Answer(failure=Failure(f"{type(error).__name__}: {error}"))
        finally:
            sending = False

    def work() -> None:
        threading.Thread(target=_end_with_the_parent, name="rewardcore-parent", daemon=True).start()
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

"""Child processes: how they are started, what may travel to them, and how they end.

A child is spawned, never forked; it ignores Ctrl-C, which is its parent's to handle, and ends when its pipe does, so no
child outlives its parent. What a child does is said by the driver or the transport that starts it, which is its
listener. Before it takes anything on it says READY, or why it cannot. Nothing here raises into the loop: whatever goes
wrong with a child, its listener is told once that it is lost, and why.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import linecache
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import weakref
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Protocol

from ..failures import ConfigurationError
from ..forks import at_fork
from ..notices import say

#: How long a child has to follow SIGTERM; SIGKILL comes then, which ends one that is stopped too.
_PATIENCE_SECONDS = 1.0
#: One that may take its time to end says so at every beat. So many in a row without a word, and it is not waited for.
#: Beats are counted, not seconds: a parent that was suspended itself has missed one, not all.
BEAT_SECONDS, _SILENT_BEATS = 0.5, 4
#: What a child says when it can work, and before the reason why it cannot.
_READY, _CANNOT_START = b"ready", b"cannot start: "
#: The head of a message: its length, as multiprocessing's Connection writes it at the other end.
_HEAD = struct.Struct("!i")


def check_children(mode: str, **travellers: object) -> None:
    """Before a mode that needs children is opened: they can be started here, and these things can reach them."""
    if multiprocessing.current_process().daemon:
        raise ConfigurationError(f"{mode} needs a child process, and this process is daemonic, so it may have none")
    main = sys.modules["__main__"]
    file, name = getattr(main, "__file__", None), getattr(getattr(main, "__spec__", None), "name", "")
    imports_main = not name.endswith("__main__") if name else file is not None  # as multiprocessing does
    if imports_main and not name and not os.path.exists(file or ""):
        raise ConfigurationError(f"{mode} needs a child that imports this script, but it is {file}: put it into a file")
    if getattr(multiprocessing.current_process(), "_inheriting", False) or (imports_main and _is_unguarded(main)):
        raise ConfigurationError(
            f"{mode} needs a child that imports this script, which would run it again: put what it does under "
            'if __name__ == "__main__":'
        )
    for name, value in travellers.items():
        try:
            packed = pickle.dumps(value)
        except Exception as error:
            raise ConfigurationError(
                f"{name} must be picklable to reach another process: define it at a module's top level ({error})"
            ) from error
        if b"__main__" in packed and not imports_main:
            raise ConfigurationError(
                f"{name} is defined in a notebook or prompt, where no child finds it: put it into a module"
            )


def _is_unguarded(main: object) -> bool:
    """Whether the line of the main script that led here would run again in a child that imports it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame is None:  # another thread
        return False
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except SyntaxError:  # no source to look at
        return False
    for node in tree.body:
        if node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno):
            return not (isinstance(node, ast.If) and "__name__" in ast.dump(node.test))
    return False


class Listener(Protocol):
    """Whoever has a child: told on the loop, message by message, and once at the end. After `lost` nothing comes."""

    def received(self, message: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...


class Child(Protocol):
    """A child as its listener has it, on the loop. Nothing here raises."""

    @property
    def reason(self) -> str:
        """Why it is gone; empty while it is not."""

    @property
    def ready(self) -> asyncio.Future[None]:
        """Done when it can work; cancelled if it is lost before."""

    @property
    def connecting(self) -> asyncio.Future[None]:
        """Done when messages pass without further ado, though the child may still be starting."""

    def write(self, message: bytes) -> None: ...

    def signal(self, number: int) -> None: ...

    def give_up(self, reason: str) -> None:
        """Its listener is told that it is lost; it still has to be ended."""

    async def end(self, patience: float = 0.0) -> None:
        """It is gone when this returns; while it is heard of, it may take so long. Asked again, it is the same end."""


#: Starts a child for its listener, on the loop. A test may bring another kind of child.
OpenChild = Callable[[Listener], Child]


def spawn() -> tuple[BaseProcess, Connection]:
    """Start a child, which runs what the first message says.

    Only the connection travels with the process: what is larger than a pipe would make `start` wait for the child.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(there,), name="rewardcore", daemon=True)
    # A child inherits what is blocked: so no Ctrl-C reaches it before it can say that it ignores them. The resource
    # tracker is started first, because starting it with the child would unblock them again.
    blocked = None
    try:
        resource_tracker.ensure_running()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        process.start()
    except BaseException:
        here.close()
        raise
    finally:
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        there.close()
    _spawned.add(process)
    return process, here


def _disown() -> None:
    """After a fork: at its exit this process must not end the children of its parent as if they were its own."""
    getattr(multiprocessing.process, "_children", set()).difference_update(_spawned)


_spawned: weakref.WeakSet[BaseProcess] = weakref.WeakSet()
at_fork(after_in_child=_disown)


class SpawnedChild(asyncio.Protocol):
    """A process that runs `main(connection, *arguments)`; what that returns is called when it has said READY."""

    def __init__(self, listener: Listener, main: Callable[..., Callable[[], None]], *arguments: Any) -> None:
        self.reason = ""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._received = bytearray()
        self._was_heard = False
        self._early: list[bytes] = []
        self._process: BaseProcess | None = None
        self._transport: asyncio.Transport | None = None
        self._ending: asyncio.Task[None] | None = None
        self.connecting = self._loop.create_task(self._connect(main, arguments))

    async def _connect(self, main: Callable[..., Callable[[], None]], arguments: tuple[Any, ...]) -> None:
        try:
            packed = pickle.dumps((main, arguments))
            self._process, connection = spawn()
            with connection:
                end_here = socket.socket(fileno=os.dup(connection.fileno()))
            transport, _ = await self._loop.create_unix_connection(lambda: self, sock=end_here)
        except Exception as error:
            self.give_up(f"a child process could not start: {type(error).__name__}: {error}")
            return
        self._transport = transport
        for message in (packed, *self._early):
            self.write(message)

    def write(self, message: bytes) -> None:
        if self._transport is None:
            self._early.append(message)
        elif not self.reason:
            self._transport.write(_HEAD.pack(len(message)) + message)

    def signal(self, number: int) -> None:
        """Only while it runs: the number of one that was is somebody else's."""
        process = self._process
        if process is not None and process.is_alive() and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def give_up(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            if self._transport is not None:
                self._transport.abort()
            if not self.ready.done():
                self.ready.cancel()
            self._listener.lost(reason)

    async def end(self, patience: float = 0.0) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(self._end(patience))
        await asyncio.shield(self._ending)

    async def _end(self, patience: float) -> None:
        """Let it end by itself; then SIGTERM, then SIGKILL. Without a thread: at exit there are none."""
        await self.connecting
        process, self._process = self._process, None
        if process is not None:
            gone = asyncio.Event()
            self._loop.add_reader(process.sentinel, gone.set)
            silent = 0
            for _ in range(int(patience / BEAT_SECONDS)):
                if await _within(gone, BEAT_SECONDS) or silent == _SILENT_BEATS:
                    break
                silent, self._was_heard = 0 if self._was_heard else silent + 1, False
            for stop, seconds in ((process.terminate, _PATIENCE_SECONDS), (process.kill, None)):
                if not gone.is_set():
                    stop()
                    await _within(gone, seconds)
            self._loop.remove_reader(process.sentinel)
        self.give_up("the judge was closed")
        if process is not None:
            process.join()
            process.close()

    def data_received(self, data: bytes) -> None:
        """Whatever is wrong with a message, and nobody has seen to, is the end of the child that sent it."""
        self._was_heard = True
        self._received += data
        try:
            self._read()
        except Exception as error:
            reason = f"the process that judges sent what could not be read: {type(error).__name__}: {error}"
            self.give_up(reason)
            say(logging.ERROR, "%s", reason, exc_info=error)

    def _read(self) -> None:
        while len(self._received) >= _HEAD.size and not self.reason:
            length = _HEAD.unpack_from(self._received)[0]
            if length < 0:
                raise ValueError(f"a message of {length} bytes")
            end = _HEAD.size + length
            if len(self._received) < end:
                return
            message = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            if message == _READY:
                self.ready.set_result(None)
            elif message.startswith(_CANNOT_START):
                self.give_up(f"a child process could not start: {message.removeprefix(_CANNOT_START).decode()}")
            else:
                self._listener.received(message)

    def connection_lost(self, error: Exception | None) -> None:
        while_it = "" if self.ready.done() else " while it started"
        self.give_up(f"the process that judged this sample died{while_it}")


async def _within(event: asyncio.Event, seconds: float | None) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def _run(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, OSError):  # the parent is gone, or has had enough
        packed = connection.recv_bytes()
        try:
            main, arguments = pickle.loads(packed)
            work = main(connection, *arguments)
        except BaseException as error:
            connection.send_bytes(_CANNOT_START + f"{type(error).__name__}: {error}".encode())
            return
        connection.send_bytes(_READY)
        work()

"""Child processes: how they are started, what may travel to them, and how they end.

A child is spawned, never forked; it ignores Ctrl-C, which is its parent's to handle, and ends when its pipe does, so no
child outlives its parent. What a child does is said by the driver or the transport that starts it. Before it takes
anything on it says READY, or why it cannot.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import linecache
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from ..failures import ConfigurationError

_PATIENCE_SECONDS = 5.0
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


def spawn(main: Callable[..., Callable[[], None]], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Start `main(connection, *arguments)` in a child; what it returns is called when the child has said READY."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(
        target=_run, args=(there, pickle.dumps((main, arguments))), name="rewardcore", daemon=True
    )
    # A child inherits what is blocked: so no Ctrl-C reaches it before it can say that it ignores them. The resource
    # tracker is started first, because starting it with the child would unblock them again.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    except BaseException:
        here.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        there.close()
    _spawned.add(process)
    return process, here


def _disown() -> None:
    """After a fork: at its exit this process must not end the children of its parent as if they were its own."""
    getattr(multiprocessing.process, "_children", set()).difference_update(_spawned)


_spawned: weakref.WeakSet[BaseProcess] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)


class Child(asyncio.Protocol, ABC):
    """A spawned process as the loop sees it: messages there and back, and its end, with the reason."""

    def __init__(self, main: Callable[..., Callable[[], None]], *arguments: Any) -> None:
        self.reason = ""  # why it is gone
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._received = bytearray()
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.process, connection = spawn(main, *arguments)
        with connection:
            self._connecting = self._loop.create_task(self._connect(socket.socket(fileno=os.dup(connection.fileno()))))

    @abstractmethod
    def received(self, message: bytes) -> None: ...

    @abstractmethod
    def lost(self, reason: str) -> None:
        """It is gone, or given up; told once."""

    def write(self, message: bytes) -> None:
        packed = _HEAD.pack(len(message)) + message
        if self._transport is None:
            self._early.append(packed)
        elif not self.reason:
            self._transport.write(packed)

    def give_up(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            if self._transport is not None:
                self._transport.abort()
            if not self.ready.done():
                self.ready.cancel()
            self.lost(reason)

    async def end(self, patience: float = 0.0) -> None:
        """Let it end by itself for so long; then SIGTERM, then SIGKILL. Without a thread: at exit there are none."""
        await asyncio.wait([self._connecting])
        gone = asyncio.Event()
        self._loop.add_reader(self.process.sentinel, gone.set)
        for stop, seconds in ((None, patience), (self.process.terminate, _PATIENCE_SECONDS), (self.process.kill, None)):
            if stop is not None:
                stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gone.wait(), seconds)
                break
        self._loop.remove_reader(self.process.sentinel)
        self.give_up("the judge was closed")
        self.process.join()
        self.process.close()

    async def _connect(self, end_here: socket.socket) -> None:
        self._transport, _ = await self._loop.create_unix_connection(lambda: self, sock=end_here)
        self._transport.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= _HEAD.size:
            end = _HEAD.size + _HEAD.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            message = bytes(self._received[_HEAD.size : end])
            del self._received[:end]
            if message == _READY:
                self.ready.set_result(None)
            elif message.startswith(_CANNOT_START):
                self.give_up(f"a child process could not start: {message.removeprefix(_CANNOT_START).decode()}")
            else:
                self.received(message)

    def connection_lost(self, error: Exception | None) -> None:
        while_it = "" if self.ready.done() else " while it started"
        self.give_up(f"the process that judged this sample died{while_it}")


def _run(connection: Connection, packed: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, OSError):  # the parent is gone, or has had enough
        try:
            main, arguments = pickle.loads(packed)
            work = main(connection, *arguments)
        except BaseException as error:
            connection.send_bytes(_CANNOT_START + f"{type(error).__name__}: {error}".encode())
            return
        connection.send_bytes(_READY)
        work()

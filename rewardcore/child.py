"""Child processes: how they are started, what may travel to them, and how they end.

A child is spawned, never forked; it ignores Ctrl-C, which is its parent's to handle, and ends when its pipe does, so no
child outlives its parent. What a child does is said by the mode that starts it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import weakref
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import NoneType
from typing import Any

from .clock import SYSTEM_CLOCK
from .failures import ConfigurationError
from .settings import Settings

PATIENCE_SECONDS = 5.0


def portable(settings: Settings) -> Settings:
    """The settings as a child may have them, or an error that names what cannot travel."""
    if not isinstance(settings.cache, (str, os.PathLike, bool, NoneType)):
        raise ConfigurationError("cache must be a path, True or None where another process judges, not an object")
    if settings.clock is not SYSTEM_CLOCK:
        raise ConfigurationError("clock must be the system's where another process judges")
    check_picklable("endpoint", settings.endpoint)
    check_picklable("rubric", settings.rubric)
    return settings


def check_picklable(name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except Exception as error:
        raise ConfigurationError(
            f"{name} must be picklable to reach another process: define it at a module's top level ({error})"
        ) from error


def spawn(main: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Start `main(connection, *arguments)` in a child."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(main, there, arguments), name="rewardcore", daemon=True)
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


def end(process: BaseProcess) -> None:
    """Stop a child surely: SIGTERM, then SIGKILL. Its pipe ends with it, and whoever reads there notices."""
    process.terminate()
    process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def _run(main: Callable[..., None], connection: Connection, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with contextlib.suppress(EOFError, OSError):  # the parent is gone, or has had enough
        main(connection, *arguments)

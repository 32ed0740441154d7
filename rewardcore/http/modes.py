"""The HTTP modes of `open_judge`: which driver and which transport. Arguments are checked before anything starts."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

from ..arguments import check_choice, check_whole
from ..calls import Driver
from ..clock import SYSTEM_CLOCK
from ..failures import ConfigurationError
from ..forks import no_fork
from ..judge import Judge
from .drivers.loop import LoopDriver
from .drivers.loop_thread import LoopThread
from .drivers.sync import SyncDriver
from .endpoint import Endpoint
from .processes import check_children
from .settings import Settings
from .transports import Transport

if TYPE_CHECKING:
    from .check import Check

TransportName = Literal["aiohttp", "httpx"]


def open_sync(endpoint: Endpoint, **options: Any) -> Judge:
    settings = Settings(endpoint, **options)
    driver = functools.partial(SyncDriver, settings.deadline)
    hire = functools.partial(_drive, settings, "httpx", driver, places=1)
    return Judge(settings.name, hire, settings.deadline, 1, rounds=1, check=functools.partial(_check, settings))


def open_process(
    endpoint: Endpoint,
    *,
    workers: int | None = None,
    worker_setup: Callable[[], object] | None = None,
    **options: Any,
) -> Judge:
    settings = Settings(endpoint, **options)
    if workers is None:
        workers = 4 * (os.cpu_count() or 1)
    check_whole("workers", workers)
    if worker_setup is not None and not callable(worker_setup):
        raise ConfigurationError(f"worker_setup must be a function without arguments, not {worker_setup!r:.40}")
    check_children('mode "process"', endpoint=endpoint, rubric=settings.rubric, worker_setup=worker_setup)
    from .transports.worker_pool import WorkerPool, workers_of

    pool = functools.partial(WorkerPool, workers_of(endpoint, settings.rubric, worker_setup))
    hire = functools.partial(_on_a_loop, settings, pool, LoopDriver, workers)
    check = functools.partial(_check, settings)
    return Judge(settings.name, hire, settings.deadline, _chunk_size(settings), check=check)


def open_asyncio(
    endpoint: Endpoint,
    *,
    transport: TransportName = "aiohttp",
    background: Literal["thread", "process"] = "thread",
    **options: Any,
) -> Judge:
    settings = Settings(endpoint, **options)
    check_choice("transport", transport, "aiohttp", "httpx")
    check_choice("background", background, "thread", "process")
    drive = functools.partial(_drive, settings, transport)
    hire: Callable[[], Driver] = drive
    if background == "process":
        check_children('background="process"', endpoint=endpoint, rubric=settings.rubric)
        _check_travels(settings)
        hire = functools.partial(_drive_elsewhere, settings, drive)
    check = functools.partial(_check, settings)
    return Judge(settings.name, hire, settings.deadline, _chunk_size(settings), check=check)


def _chunk_size(settings: Settings) -> int:
    """Of a stream: with a round of them on the wire, the next ones are at hand."""
    limit = settings.max_concurrent
    return 64 if limit == "auto" else max(16, limit)


def _check(settings: Settings, seconds: float) -> Check:
    with no_fork:
        from .check import check
    return check(settings, seconds)


def _drive(
    settings: Settings,
    transport: TransportName,
    driver: Callable[..., LoopDriver] = LoopDriver,
    places: int | None = None,
) -> LoopDriver:
    """The client is imported only now, since it costs more than a small batch; and here, not on the loop."""
    client: Callable[[Endpoint], Transport]
    with no_fork:
        if transport == "httpx":
            from .transports.httpx_client import AsyncHttpx as client
        else:
            from .transports.aiohttp_client import AiohttpTransport as client
    return _on_a_loop(settings, functools.partial(client, settings.endpoint), driver, places)


def _check_travels(settings: Settings) -> None:
    if not isinstance(settings.cache, (str, os.PathLike, bool, NoneType)):
        raise ConfigurationError("cache must be a path, True or None where another process judges, not an object")
    if settings.clock is not SYSTEM_CLOCK:
        raise ConfigurationError("clock must be the system's where another process judges")
    if settings.wrap_transport is not None:
        raise ConfigurationError("wrap_transport must be left out where another process judges")
    settings.close_cache(settings.open_cache())  # one that cannot be used is an error here, not in the child


def _drive_elsewhere(settings: Settings, drive: Callable[[], LoopDriver]) -> Driver:
    with no_fork:
        from .drivers.elsewhere import elsewhere
        from .drivers.remote import RemoteDriver
    return RemoteDriver(settings.clock, LoopThread.acquire(settings.clock), elsewhere(drive))


def _on_a_loop(
    settings: Settings, open_transport: Callable[[], Transport], driver: Callable[..., LoopDriver], places: int | None
) -> LoopDriver:
    wrap = settings.wrap_transport
    opened = open_transport if wrap is None else lambda: wrap(open_transport())
    engine = settings.new_engine(places)
    thread = LoopThread.acquire(settings.clock)
    return driver(settings.clock, engine, opened, settings.close_engine, thread)

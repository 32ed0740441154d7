"""Judges: what turns samples into verdicts, with one contract for every mode.

`open_judge` checks every argument before anything starts. A judge itself is a thin shell: it hands calls to a driver,
which says how requests are driven, and it survives a fork by hiring a new driver in the child.
"""

from __future__ import annotations

import asyncio
import atexit
import collections.abc
import contextlib
import importlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from .calls import Batch, Driver, Pending, check_may_wait, open_drivers
from .clock import Event
from .failures import ConfigurationError, RewardcoreError, described
from .forks import at_fork, no_fork
from .notices import Losses, Tally, say
from .options import AnyOptions, AsyncioOptions, HttpOptions, ProcessOptions, SelfOptions
from .progress import Watcher, watched
from .sample import Sample
from .stats import Stats
from .stream import Stream
from .verdict import Verdict

if TYPE_CHECKING:
    from .http.check import Check
    from .http.endpoint import Endpoint
    from .local.generator import Generator


#: How often whoever watches is told how far it is.
_LOOK_SECONDS = 0.1


class Judge:
    """The contract of every mode: `judge`, `submit`, `stream`, and in a running loop `ajudge` and `astream`; `stats`,
    `close`; a context manager; usable from any thread, since the work is done in another.

    A stream takes samples by the chunk, and so many rounds of them ahead.
    """

    def __init__(
        self,
        name: str,
        hire: Callable[[], Driver],
        deadline: float,
        chunk_size: int,
        rounds: int = 4,
        check: Callable[[float], Check] | None = None,
    ) -> None:
        self._name = name
        self._chunk_size = chunk_size
        self._rounds = rounds
        self._check = check
        self._hire = hire
        self._deadline_seconds = deadline
        self._closed = self._is_gone = False
        self._seconds_blocked = 0.0
        self._hiring = threading.Lock()
        self._driver = self._hired()
        self._losses = Losses(self._driver.clock.now)
        _judges.add(self)

    def judge(self, samples: Iterable[Sample], *, progress: Watcher | bool = False) -> list[Verdict]:
        """One verdict per sample, in input order.

        `progress` is told (done, total, failed) now and then, in this thread; True shows a bar, or lines, on stderr.
        Where it raises an Exception it is told no more, with a warning, and judging goes on.
        """
        pending = self.submit(samples)
        if progress:
            with watched(progress, _dropped) as tell:
                while not pending.done():
                    try:
                        tell(pending.progress)
                    except BaseException:  # Ctrl-C
                        pending.cancel()
                        raise
                    pending.wait(_LOOK_SECONDS)
                tell(pending.progress)
        return pending.result()

    def submit(self, samples: Iterable[Sample]) -> Pending:
        """Return at once; collect with `result()`. The sync mode only begins to work there."""
        driver = self._here()
        batch = Batch(list(_numbered(samples)), self._deadline(), self._ended)
        if not batch.is_done:
            driver.begin(batch.call)
        return Pending(batch, driver, self._add_blocked)

    def stream(self, samples: Iterable[Sample]) -> collections.abc.Generator[tuple[int, Verdict]]:
        """Yield (index, verdict) as replies arrive, from an iterable of any length, in bounded memory.

        Samples are taken a few rounds ahead of the consumer; each has the whole deadline from when it was taken. The
        sync mode takes one, and the next when it is asked for that. Breaking off abandons what is left.
        """
        something = self._driver.clock.event()
        with self._streaming(samples, something.set) as stream:
            while stream.take():
                while not stream.arrived:
                    something.clear()
                    if not stream.arrived:  # else it came just before the event was cleared
                        self._wait(something)
                for _ in range(len(stream.arrived)):
                    yield stream.receive()

    async def ajudge(self, samples: Iterable[Sample]) -> list[Verdict]:
        """`judge` for a running loop, which goes on meanwhile; cancelling it cancels the call."""
        return await self.submit(samples)

    async def astream(self, samples: Iterable[Sample]) -> AsyncIterator[tuple[int, Verdict]]:
        """`stream` for a running loop, which goes on meanwhile."""
        check_may_wait()
        loop, something = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the consumer's loop is closed: nobody reads on
                loop.call_soon_threadsafe(something.set)

        with self._streaming(samples, wake) as stream:
            while stream.take():
                while not stream.arrived:
                    something.clear()
                    await something.wait()
                for _ in range(len(stream.arrived)):
                    yield stream.receive()

    def check(self, seconds: float = 30.0) -> Check:
        """Whether the endpoint can judge: printed, a line each for reachable, key, model, one sample and quota."""
        if self._check is None:
            raise ConfigurationError("this judge has no endpoint to check: a generator answers it")
        return self._check(seconds)

    @property
    def stats(self) -> Stats:
        """A snapshot of what this judge has done in this process."""
        driver = self._driver
        figures = driver.stats() if driver.pid == os.getpid() else Stats()
        return replace(figures, blocked=self._seconds_blocked)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Give every waiting sample its verdict, put the cache on disk, leave nothing running.

        Twice is fine, also at once: whoever closes returns when it is closed.
        """
        if self._is_gone:
            return
        check_may_wait()
        self._closed = True
        if self._driver.pid == os.getpid():
            self._driver.end()
            self._losses.flush()
        self._is_gone = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.close)  # whoever runs on this loop goes on meanwhile

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    def _ended(self, verdicts: list[Verdict]) -> None:
        tally = Tally()
        for verdict in verdicts:
            if verdict.status != "ok":
                tally.add(verdict)
        self._losses.ended(tally, len(verdicts))

    def _deadline(self) -> float:
        return self._driver.clock.now() + self._deadline_seconds

    def _streaming(self, samples: Iterable[Sample], wake: Callable[[], object]) -> Stream:
        sizes = self._chunk_size, self._rounds
        return Stream(_numbered(samples), self._here(), self._deadline, self._losses, wake, *sizes)

    def _wait(self, event: Event) -> None:
        check_may_wait()
        started = self._driver.clock.now()
        try:
            event.wait()
        finally:
            self._add_blocked(self._driver.clock.now() - started)

    def _add_blocked(self, seconds: float) -> None:
        self._seconds_blocked += seconds

    def _here(self) -> Driver:
        """This process's driver; after a fork, a new one."""
        if self._closed:
            raise RewardcoreError("this judge is closed; open another")
        if self._driver.pid != os.getpid():
            with self._hiring:
                if self._driver.pid != os.getpid():
                    self._driver = self._hired()
        return self._driver

    def _hired(self) -> Driver:
        driver = self._hire()
        open_drivers.add(driver)
        weakref.finalize(self, driver.let_go).atexit = False  # by then it is closed
        _close_at_exit()
        return driver


def _dropped(error: Exception) -> None:
    say(logging.WARNING, "progress raised %s; it is told no more, and judging goes on", described(error))


def _numbered(samples: Iterable[Sample]) -> Iterator[tuple[int, Sample]]:
    """The samples with their places; a clear error where there is something else."""
    if isinstance(samples, (str, bytes, Sample)) or not isinstance(samples, Iterable):
        raise ConfigurationError(f"samples must be a list of Samples, not one {type(samples).__name__}")
    for index, sample in enumerate(samples):
        if not isinstance(sample, Sample):
            kind = type(sample).__name__
            raise ConfigurationError(f"samples[{index}] must be a rewardcore.Sample(prompt, response), not a {kind}")
        yield index, sample


_judges: weakref.WeakSet[Judge] = weakref.WeakSet()


def _close_all() -> None:
    """At exit: a judge that was never closed still gets its cache onto the disk."""
    for judge in list(_judges):
        judge.close()
    for driver in list(open_drivers):
        if driver.pid == os.getpid():
            driver.end()


def _close_at_exit() -> None:
    # Last in, first out: whatever a driver has imported must not end its child processes before it does.
    atexit.unregister(_close_all)
    atexit.register(_close_all)
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing import util  # its children leave without the interpreter's own farewell

        util.Finalize(None, _close_all, exitpriority=100)


def _hire_anew() -> None:
    """After a fork: the drivers are the parent's, and whoever was hiring one too."""
    for judge in list(_judges):
        judge._hiring = threading.Lock()


at_fork(after_in_child=_hire_anew)


#: mode → the module and its function that opens it, and the options it takes.
_MODES: dict[str, tuple[str, str, type]] = {
    "sync": (".http.modes", "open_sync", HttpOptions),
    "process": (".http.modes", "open_process", ProcessOptions),
    "asyncio": (".http.modes", "open_asyncio", AsyncioOptions),
    "self": (".local.self_judge", "open_self", SelfOptions),
}


@overload
def open_judge(mode: Literal["asyncio"], endpoint: Endpoint, **options: Unpack[AsyncioOptions]) -> Judge: ...


@overload
def open_judge(mode: Literal["process"], endpoint: Endpoint, **options: Unpack[ProcessOptions]) -> Judge: ...


@overload
def open_judge(mode: Literal["sync"], endpoint: Endpoint, **options: Unpack[HttpOptions]) -> Judge: ...


@overload
def open_judge(mode: Literal["self"], endpoint: Generator, **options: Unpack[SelfOptions]) -> Judge: ...


@overload
def open_judge(mode: str, endpoint: Endpoint | Generator, **options: Unpack[AnyOptions]) -> Judge: ...


def open_judge(mode: str, endpoint: Any, **options: Any) -> Judge:
    """Open a judge. Options of the HTTP modes, all of them by name:

    - `max_concurrent`: requests in flight at most; 60 by default, "auto" finds the endpoint's limit.
    - `cache`: True keeps replies in memory (the default), a path in a SQLite file, None nowhere.
    - `deadline`: seconds for a whole call; 300 by default.
    - `max_retries`: how often a sample is tried again whose failures are its own; 5 by default. Outages are waited out.
    - asyncio: `transport` ("aiohttp" or "httpx") and `background` ("thread" or "process").
    - process: `workers`, how many processes at most, and `worker_setup`, called in each before it works.
    - self: a generator in place of the endpoint, and `rubric` and `batch_size`.
    """
    check_may_wait()
    if not isinstance(mode, str) or mode not in _MODES:
        raise ConfigurationError(f"mode must be one of {', '.join(map(repr, _MODES))}, not {mode!r}")
    module_name, function, taken = _MODES[mode]
    for name in options:
        if name not in taken.__annotations__:
            known = ", ".join(taken.__annotations__)
            raise ConfigurationError(f"{name} is no option of mode {mode!r}; it takes {known}")
    with no_fork:
        opener: Callable[..., Judge] = getattr(importlib.import_module(module_name, __package__), function)
    return opener(endpoint, **options)

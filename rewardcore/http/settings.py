"""What every HTTP mode is told, checked in one place before anything starts; and the engine that is made of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..arguments import check, check_seconds, check_whole
from ..clock import SYSTEM_CLOCK, Clock
from ..forks import no_fork
from ..notices import say
from ..rubrics import QUALITY, Rubric
from ..rubrics.rubric import check_rubric
from .cache import Cache, GuardedCache, MemoryCache, SqliteCache, is_path
from .endpoint import Endpoint, not_an_endpoint
from .engine import Engine
from .pace import AUTO_CEILING, Pace, Patience
from .request import RequestBuilder
from .retry import MAX_RETRIES, Blame

if TYPE_CHECKING:
    from .transports import Transport

CacheChoice = Cache | str | os.PathLike[str] | bool | None
#: Files that a process opens besides its connections: the cache, libraries, the trainer's own data.
OTHER_FILES = 32
_OF_A_CLOCK = ("now", "sleep", "event", "new_event_loop")


@dataclass(frozen=True)
class Settings:
    """Small, and picklable but for a cache object, a clock or a transport of the caller's own."""

    endpoint: Endpoint
    rubric: Rubric = QUALITY
    max_concurrent: int | Literal["auto"] = 60
    cache: CacheChoice = True
    deadline: float = 300.0
    request_timeout: float | None = None
    startup_timeout: float = 60.0
    max_retries: int = MAX_RETRIES
    clock: Clock = SYSTEM_CLOCK
    wrap_transport: Callable[[Transport], Transport] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.endpoint, Endpoint):
            raise not_an_endpoint(self.endpoint)
        self.endpoint.api_key()  # a key that no header can carry is an error now, not in mid-run
        check_rubric(self.rubric)
        check_whole("max_concurrent", self.max_concurrent, "auto")
        is_cache = isinstance(self.cache, (bool, Cache)) and not isinstance(self.cache, type)
        wanted = "True (in memory), None, the path of a file, or an object with get, put and close"
        check("cache", self.cache, wanted, self.cache is None or is_cache or is_path(self.cache))
        check_whole("max_retries", self.max_retries, least=0)
        is_clock = all(callable(getattr(self.clock, name, None)) for name in _OF_A_CLOCK)
        check("clock", self.clock, "a rewardcore.clock.Clock, or like one", is_clock)
        wanted = "a function that is given the mode's transport and returns one that sends by it"
        check("wrap_transport", wrap := self.wrap_transport, wanted, wrap is None or callable(wrap))
        for name in ("deadline", "request_timeout", "startup_timeout"):
            if name != "request_timeout" or self.request_timeout is not None:
                check_seconds(name, getattr(self, name))

    @property
    def name(self) -> str:
        return f"{self.endpoint.model!r} at {self.endpoint.identity or self.endpoint.base_url}"

    def open_cache(self) -> Cache | None:
        if self.cache is True:
            return MemoryCache()
        if self.cache is None or self.cache is False:
            return None
        if isinstance(self.cache, (str, os.PathLike)):
            return SqliteCache(self.cache)
        return self.cache if type(self.cache) in (MemoryCache, SqliteCache) else GuardedCache(self.cache)

    def close_cache(self, cache: Cache | None) -> None:
        """A judge closes the cache that it opened; one that the caller brought is only put on disk."""
        if cache is not None and cache is not self.cache:
            cache.close()
        elif isinstance(cache, SqliteCache):
            cache.flush()

    def new_engine(self, places: int | None = None) -> Engine:
        """`places` is how many requests the driver can carry at all; without it, as many as there may be files."""
        if places is None:
            places = self._connections()
        cache = self.open_cache()
        ceiling = AUTO_CEILING if self.max_concurrent == "auto" else self.max_concurrent
        pace = Pace(min(ceiling, places), finds=self.max_concurrent == "auto")
        return Engine(
            RequestBuilder(self.endpoint, self.rubric),
            self.rubric,
            cache,
            pace,
            Patience(self.request_timeout),
            self.startup_timeout,
            self.endpoint.mask(),
            blame=Blame(self.max_retries),
        )

    def close_engine(self, engine: Engine) -> None:
        self.close_cache(engine.cache)

    def _connections(self) -> int:
        """How many this process may open; told where that is fewer than were asked for."""
        try:
            with no_fork:
                import resource
            files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            places = max(1, files - len(os.listdir("/dev/fd")) - OTHER_FILES)
        except (ImportError, OSError):  # no such limit here
            return 2**31
        if files == resource.RLIM_INFINITY:
            return 2**31
        if self.max_concurrent != "auto" and self.max_concurrent > places:
            say(
                logging.WARNING,
                "max_concurrent=%d needs as many connections, and this process may open %d files: at most %d requests "
                "are sent at once; raise the limit with `ulimit -n %d`",
                self.max_concurrent,
                files,
                places,
                self.max_concurrent + files - places,
            )
        return places

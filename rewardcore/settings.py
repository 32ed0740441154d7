"""What every HTTP mode is told, checked in one place before anything starts; and the engine that is made of it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Literal

from .cache import Cache, MemoryCache, SqliteCache
from .clock import SYSTEM_CLOCK, Clock
from .endpoint import Endpoint
from .engine import Engine
from .failures import ConfigurationError
from .limit import Limit
from .request import RequestBuilder
from .retry import RetryBudget
from .rubrics import QUALITY, Rubric
from .stats import Counters

CacheChoice = Cache | str | os.PathLike[str] | bool | None


@dataclass(frozen=True)
class Settings:
    """Small, and picklable but for a cache object or a clock of the caller's own."""

    endpoint: Endpoint
    rubric: Rubric = QUALITY
    max_concurrent: int | Literal["auto"] = 60
    cache: CacheChoice = True
    deadline: float = 300.0
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        if not isinstance(self.endpoint, Endpoint):
            raise ConfigurationError(f"endpoint must be a rewardcore.Endpoint, not {type(self.endpoint).__name__}")
        self.endpoint.api_key()  # a key that no header can carry is an error now, not in mid-run
        check_rubric(self.rubric)
        limit = self.max_concurrent
        if limit != "auto" and (type(limit) is not int or limit < 1):
            raise ConfigurationError(f'max_concurrent must be a whole number above 0 or "auto", not {limit!r}')
        if not isinstance(self.deadline, (int, float)) or not 0 < self.deadline < math.inf:
            raise ConfigurationError(f"deadline must be seconds above 0, not {self.deadline!r}")

    @property
    def name(self) -> str:
        return f"{self.endpoint.model!r} at {self.endpoint.base_url}"

    def open_cache(self) -> Cache | None:
        if self.cache is True:
            return MemoryCache()
        if self.cache is None or self.cache is False:
            return None
        if isinstance(self.cache, (str, os.PathLike)):
            return SqliteCache(self.cache)
        return self.cache

    def close_cache(self, cache: Cache | None) -> None:
        """A judge closes the cache that it opened, not one that the caller brought."""
        if cache is not None and cache is not self.cache:
            cache.close()

    def new_engine(self) -> Engine:
        limit = Limit.auto() if self.max_concurrent == "auto" else Limit.fixed(self.max_concurrent)
        return Engine(
            RequestBuilder(self.endpoint, self.rubric),
            self.rubric,
            self.open_cache(),
            limit,
            RetryBudget(trickle=max(1.0, limit.current / 10)),
            Counters(),
        )


def check_rubric(rubric: object) -> None:
    if not isinstance(rubric, Rubric):
        raise ConfigurationError(
            f"rubric must have messages(sample) and parse(text), as rewardcore.rubrics.QUALITY has; "
            f"{type(rubric).__name__} has not"
        )

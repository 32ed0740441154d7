"""What `open_judge` takes in each mode, for editors and type checkers; `open_judge` reads the names from here."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from .clock import Clock
    from .http.cache import Cache
    from .http.transports import Transport
    from .rubrics import Rubric


class HttpOptions(TypedDict, total=False):
    """What every HTTP mode takes."""

    rubric: Rubric
    max_concurrent: int | Literal["auto"]
    cache: Cache | str | os.PathLike[str] | bool | None
    deadline: float
    request_timeout: float | None
    startup_timeout: float
    max_retries: int
    clock: Clock
    wrap_transport: Callable[[Transport], Transport]


class ProcessOptions(HttpOptions, total=False):
    workers: int
    worker_setup: Callable[[], object]


class AsyncioOptions(HttpOptions, total=False):
    transport: Literal["aiohttp", "httpx"]
    background: Literal["thread", "process"]


class SelfOptions(TypedDict, total=False):
    rubric: Rubric
    batch_size: int | Literal["auto"] | None


class AnyOptions(ProcessOptions, AsyncioOptions, total=False):
    """Where the mode is known only when it runs; a literal mode's wrong option is then found at `open_judge`."""

    batch_size: int | Literal["auto"] | None

"""Where a checkpoint answers: at a vLLM server that is started for it and stopped after it, or at one that is there.

Both are context managers that give an `Address`: the endpoint, and a look at whether anybody still answers there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from ..failures import ConfigurationError, needs_extra
from ..http.endpoint import Endpoint
from ..progress import Say
from .plan import Checkpoint

if TYPE_CHECKING:
    from ..serving.vllm_server import VllmServer


class Address(NamedTuple):
    """`look` raises where the server is gone for good, with the reason."""

    endpoint: Endpoint
    look: Callable[[], object] = lambda: None


#: Checks at once whether a checkpoint can be served at all; within, it is.
Serve = Callable[[Checkpoint], AbstractContextManager[Address]]


def started(
    port: int = 8000,
    log_dir: str | os.PathLike[str] = "logs",
    arguments: Sequence[str] = (),
    progress: bool | Say = True,
) -> Serve:
    """A vLLM server of our own for each checkpoint; `arguments` go to vLLM as they stand."""

    def serve(checkpoint: Checkpoint) -> AbstractContextManager[Address]:
        if not checkpoint.path:
            raise ConfigurationError(
                f"model_path says where {checkpoint.name!r} lies; without it a server must be there already: give its"
                " address with --base-url, or --skip-vllm-launch for one at --model-port"
            )
        with needs_extra("serving", "a vLLM server of ours"):
            from ..serving.vllm_server import VllmServer
        return _running(VllmServer(checkpoint.path, checkpoint.name, port, log_dir, arguments, progress=progress))

    return serve


def at(base_url: str, api_key_env: str | None = "OPENAI_API_KEY") -> Serve:
    """Whoever answers there. In the cache's keys the model's path stands for the address, where it is known."""

    def serve(checkpoint: Checkpoint) -> AbstractContextManager[Address]:
        endpoint = Endpoint(base_url, checkpoint.name, api_key_env)
        if checkpoint.path:
            endpoint = dataclasses.replace(endpoint, identity=f"vllm:{checkpoint.path}")
        return contextlib.nullcontext(Address(endpoint))

    return serve


@contextlib.contextmanager
def _running(server: VllmServer) -> Iterator[Address]:
    with server as endpoint:
        yield Address(endpoint, server.raise_if_dead)

"""The simulated judge server on 127.0.0.1, and the process of its own that SimulatedServer starts.

`python -m rewardcore.testing.server --latency 0.2` prints one JSON line with its port when it is ready, and ends when
its stdin closes or its parent dies, so that no run leaves an orphan. People have `rewardcore simulate`, with the same
flags.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import orjson

from ..failures import ConfigurationError
from .connection import Connection, Service
from .latency import LatencyModel, Profile
from .replies import SimulatedJudge

PARENT_CHECK_SECONDS = 1.0


class Listening(NamedTuple):
    """A server that is bound, and does not answer yet."""

    loop: asyncio.AbstractEventLoop
    service: Service
    port: int

    def serve(self, ready: Callable[[], object]) -> None:
        """Until SIGINT, SIGTERM or `loop.stop()`. `ready` is called on the loop: before it, uvloop loses a signal."""

        def begin() -> None:
            for stopper in (signal.SIGINT, signal.SIGTERM):
                self.loop.add_signal_handler(stopper, self.loop.stop)
            ready()

        self.loop.call_soon(begin)
        self.loop.run_forever()


@contextlib.contextmanager
def listening(profile: Profile, *, port: int = 0, model: str | None = None, seed: int = 0) -> Iterator[Listening]:
    """A simulated judge in this process. Raises ConfigurationError where the port cannot be used."""
    if not 0 <= port <= 65535:  # uvloop would take another one
        raise ConfigurationError(f"--port must be from 0, which takes any free one, to 65535, not {port}")
    loop = new_event_loop()
    try:
        service = Service(SimulatedJudge(LatencyModel(profile, seed), model), loop)
        try:
            binding = loop.create_server(lambda: Connection(service), "127.0.0.1", port, backlog=4096)
            server = loop.run_until_complete(binding)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise ConfigurationError(
                f"port {port} cannot be used ({os.strerror(error.errno)}): choose another with --port, or --port 0 for"
                " any free one"
            ) from None
        yield Listening(loop, service, server.sockets[0].getsockname()[1])
        server.close()
    finally:
        loop.close()


def stop_with_parent(loop: asyncio.AbstractEventLoop) -> None:
    """Stop the loop once stdin closes; or once the parent is gone, should a fork of it keep stdin open."""
    parent = os.getppid()

    def watch_stdin() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(loop.stop)

    def watch_parent() -> None:
        if os.getppid() != parent:
            loop.stop()
        loop.call_later(PARENT_CHECK_SECONDS, watch_parent)

    threading.Thread(target=watch_stdin, daemon=True).start()
    watch_parent()


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rewardcore.testing.server",
        description="A simulated judge on 127.0.0.1; it ends when its stdin closes.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port (%(default)s)")
    parser.add_argument("--model", help="the only model name to serve; any other is a 404")
    parser.add_argument("--seed", type=int, default=0, help="of the latency model (%(default)s)")
    Profile.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        profile = Profile.from_arguments(options)
        with listening(profile, port=options.port, model=options.model, seed=options.seed) as server:
            stop_with_parent(server.loop)
            server.serve(lambda: print(orjson.dumps({"port": server.port}).decode(), flush=True))
    except ConfigurationError as error:
        print(f"rewardcore.testing.server: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

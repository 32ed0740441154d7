"""Who listens on a port of this machine: so that a server is not started where another one answers. It ends nobody."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable

import psutil

from ..failures import ConfigurationError

ADDRESS = "127.0.0.1"


def free_port(port: int) -> int:
    """This port, sure to be free a moment ago; for 0, one that is."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        # As servers do: connections that are long closed do not hold the port. One that listens does, and one that
        # listens on every address, IPv4 or IPv6, too.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(port != 0))
        try:
            trial.bind((ADDRESS, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise in_use(port) from None
            raise ConfigurationError(f"port {port} cannot be listened on ({error}); choose another, or 0") from None
        return int(trial.getsockname()[1])


def in_use(port: int) -> ConfigurationError:
    return ConfigurationError(
        f"port {port} is in use by {_names(_listeners(port))}: choose another port, or 0 for one that is free, or end"
        " that process yourself if nobody needs it"
    )


def is_held_by(port: int, ours: Callable[[int], bool]) -> bool:
    """Whether one of our processes listens there; True where that cannot be known."""
    found = _listeners(port)
    return not found or any(pid is not None and ours(pid) for pid in found)


def _listeners(port: int) -> set[int | None]:
    """The processes that listen there; None stands for those that this user may not see."""
    with contextlib.suppress(psutil.Error):
        found = psutil.net_connections("tcp")
        return {each.pid for each in found if each.status == psutil.CONN_LISTEN and each.laddr.port == port}
    return set()


def _names(pids: set[int | None]) -> str:
    names = []
    for pid in pids - {None}:
        with contextlib.suppress(psutil.Error):
            names.append(f"process {pid} ({psutil.Process(pid).name()})")  # not its arguments, which may hold a key
    return ", ".join(sorted(names)) or "another process"

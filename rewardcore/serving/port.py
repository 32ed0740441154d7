"""Who listens on a port of this machine: so that a server is not started where another one answers. It ends nobody."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from ..failures import ConfigurationError

ADDRESS = "127.0.0.1"
_LISTENING = "0A"


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
    """Whether one of our processes listens there; True where that cannot be known, without /proc."""
    return not any(_listening(port)) or bool(_listeners(port, ours))


def _listeners(port: int, among: Callable[[int], bool] = lambda _: True) -> set[int]:
    """The processes that listen there, as far as this user may see."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    found = set()
    for entry in Path("/proc").iterdir() if sockets else ():
        if entry.name.isdigit() and among(int(entry.name)):
            try:
                if any(os.readlink(link) in sockets for link in (entry / "fd").iterdir()):
                    found.add(int(entry.name))
            except OSError:  # it has ended, or is somebody else's
                continue
    return found


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            _, local, _, state, *rest = row.split()
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]


def _names(pids: set[int]) -> str:
    if not pids:
        return "another process"
    commands = []
    for pid in sorted(pids)[:3]:
        try:
            command = Path(f"/proc/{pid}/comm").read_text().strip()  # not its arguments, which may hold a key
        except OSError:
            command = "?"
        commands.append(f"process {pid} ({command})")
    return ", ".join(commands)

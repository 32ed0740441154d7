"""Files that are there whole or not at all, whenever their writer is killed; and files put aside, not deleted."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..failures import RewardcoreError
from ..notices import say


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Written beside it, and put in its place at the end; if anything is raised within, nothing has changed.

    For one writer at a time: what a writer that was killed has left beside it is the next one's to overwrite. Of a
    link, what it points to is replaced, and the link stays.
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.tmp")
    with explained(path):
        try:
            with beside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        _remember(path.parent)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What the system says of a file, as a sentence that names it."""
    try:
        yield
    except OSError as error:
        raise RewardcoreError(f"{path} cannot be written: {error.strerror or error}") from error


def put_aside(path: Path, *beside: Path) -> None:
    """Rename a file, and those that belong to it, to names that are free: `PATH.old-1`, and so on.

    Of a link, what it points to is renamed, and the link stays.
    """
    if not path.exists():
        return
    there, number = Path(os.path.realpath(path)), 1
    while any(each.with_name(f"{each.name}.old-{number}").exists() for each in (path, there)):
        number += 1
    aside = f"{path.name}.old-{number}"
    with explained(path):
        for each in beside:  # first: half done, it can be done again
            if each.exists():
                each.rename(each.with_name(aside + each.name.removeprefix(path.name)))
        there.rename(there.with_name(f"{there.name}.old-{number}"))
    say(logging.WARNING, "what was in %s is kept as %s", path, f"{there.name}.old-{number}")


def _remember(directory: Path) -> None:
    """So that a name survives a power cut, too; not every file system can be asked for it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

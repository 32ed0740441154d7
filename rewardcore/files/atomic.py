"""A file that is there whole or not at all, whenever its writer is killed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..failures import RewardcoreError


@contextlib.contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Written beside it, and put in its place at the end; if anything is raised within, nothing has changed."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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


def _remember(directory: Path) -> None:
    """So that a name survives a power cut, too; not every file system can be asked for it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""How far a batch is, and how a person who watches is told: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

#: Without a terminal: seconds before the first line, and between two.
_FIRST_SECONDS, _LINE_SECONDS = 2.0, 10.0


class Progress(NamedTuple):
    """Samples that have their verdict, all of them, and those among the first that have no score."""

    done: int
    total: int
    failed: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total} judged" + (f", {self.failed} failed" if self.failed else "")


Watcher = Callable[[Progress], object]


@contextlib.contextmanager
def watching(progress: Watcher | bool) -> Iterator[Watcher]:
    """Whom to tell: the caller's own function, or with True a bar or lines on stderr."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda _: None
    else:
        with contextlib.ExitStack() as stack:
            yield (sys.stderr.isatty() and _bar(stack)) or _lines()


def _bar(stack: contextlib.ExitStack) -> Watcher | None:
    """None without rich, which the extra `cli` brings."""
    try:
        from rich.console import Console
        from rich.progress import Progress as Bar
    except ImportError:
        return None
    bar = stack.enter_context(Bar(console=Console(stderr=True)))
    task = bar.add_task("judging", total=None)

    def tell(progress: Progress) -> None:
        failed = f", {progress.failed} failed" if progress.failed else ""
        bar.update(task, completed=progress.done, total=progress.total, description=f"judging{failed}", refresh=True)

    return tell


def _lines() -> Watcher:
    next_at = time.monotonic() + _FIRST_SECONDS
    told = False

    def tell(progress: Progress) -> None:
        nonlocal next_at, told
        is_last = told and progress.done == progress.total
        if is_last or time.monotonic() >= next_at:
            next_at, told = time.monotonic() + _LINE_SECONDS, not is_last
            print(progress, file=sys.stderr, flush=True)

    return tell

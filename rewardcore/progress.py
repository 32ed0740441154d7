"""How far a batch is, and how a person who watches is told: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .words import printable

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
#: Told again and again: how many are done, of how many if that is known, and what else there is to say.
Tell = Callable[[int, int | None, str], object]
#: Told a whole line, for a person.
Say = Callable[[str], object]


@contextlib.contextmanager
def watching(progress: Watcher | bool) -> Iterator[Watcher]:
    """Whom to tell: the caller's own function, or with True a bar or lines on stderr."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda _: None
    else:
        with showing("judged") as tell:
            yield lambda now: tell(now.done, now.total, f"{now.failed} failed" if now.failed else "")


@contextlib.contextmanager
def watched(progress: Watcher | bool, dropped: Callable[[Exception], object]) -> Iterator[Watcher]:
    """`watching`, for a caller who wants verdicts first: whoever raises is `dropped`, and told no more."""
    watch, is_out = watching(progress), False

    def attempt(action: Callable[..., Any], *arguments: object) -> Any:
        nonlocal is_out
        try:
            return action(*arguments)
        except Exception as error:
            if not is_out:
                is_out = True
                dropped(error)

    tell = attempt(watch.__enter__)
    has_begun = not is_out
    try:
        yield lambda now: None if is_out else attempt(tell, now)
    finally:
        if has_begun:
            attempt(watch.__exit__, None, None, None)


@contextlib.contextmanager
def showing(what: str) -> Iterator[Tell]:
    """On stderr, how many are `what`: a bar on a terminal, else a line after two seconds and then now and then."""
    with contextlib.ExitStack() as stack:
        yield (sys.stderr.isatty() and _bar(what, stack)) or _lines(what)


@contextlib.contextmanager
def waiting(what: str, progress: Say | bool = True) -> Iterator[Callable[[float, str], object]]:
    """Gives a function to be told (seconds so far, what was last heard of it), while somebody waits for `what`.

    With True a line on stderr that changes in place, or without a terminal one after two seconds and then now and then;
    a function is told those lines. At the end, if anything was told, that it is ready, or is not.
    """
    in_place = progress is True and sys.stderr.isatty()
    say: Say = progress if callable(progress) else lambda line: print(printable(line), file=sys.stderr, flush=True)
    next_at, waited, told = _FIRST_SECONDS, 0.0, False

    def tell(seconds: float, note: str) -> None:
        nonlocal next_at, waited, told
        waited = seconds
        if progress and seconds >= next_at:
            line = _joined(f"waiting for {what}, {seconds:.0f} s", note)
            if in_place:
                line = printable(line)[: shutil.get_terminal_size().columns - 1]
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            else:
                say(line)
                next_at = seconds + _LINE_SECONDS
            told = True

    try:
        yield tell
    except BaseException:
        if in_place and told:
            print(file=sys.stderr)
        raise
    if in_place and told:
        print("\r\x1b[K", end="", file=sys.stderr)
    if told:
        say(f"{what} is ready after {waited:.0f} s")


def _bar(what: str, stack: contextlib.ExitStack) -> Tell | None:
    """None without rich, which the extra `cli` brings."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
        from rich.table import Column
    except ImportError:
        return None
    # On a narrow terminal the words are cut, and never the figures before them.
    words = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = BarColumn(bar_width=16), MofNCompleteColumn(), TimeRemainingColumn(), words
    bar = stack.enter_context(Bar(*columns, console=Console(stderr=True), expand=True))
    task = bar.add_task(what, total=None)
    has_begun = False

    def tell(done: int, total: int | None, note: str) -> None:
        nonlocal has_begun
        if not has_begun:  # what was done before says nothing about how long the rest will take
            has_begun = True
            bar.reset(task, total=total, completed=done)
        bar.update(task, completed=done, total=total, description=printable(_joined(what, note)), refresh=done == total)

    return tell


def _lines(what: str) -> Tell:
    started = time.monotonic()
    next_at = started + _FIRST_SECONDS
    told = False
    before: int | None = None

    def tell(done: int, total: int | None, note: str) -> None:
        nonlocal next_at, told, before
        now = time.monotonic()
        before = done if before is None else before  # what was done before says nothing about the rest
        is_last = told and done == total
        if is_last or now >= next_at:
            next_at, told = now + _LINE_SECONDS, not is_last
            count = f"{done} {what}" if total is None else f"{done} of {total} {what}"
            print(
                printable(_joined(count, note, _left(done - before, total and total - before, now - started))),
                file=sys.stderr,
                flush=True,
            )

    return tell


def _left(done: int, total: int | None, seconds: float) -> str:
    """How long it will still take, if it goes on like this."""
    if total is None or not 0 < done < total:
        return ""
    left = seconds / done * (total - done)
    return f"about {left:.0f} s left" if left < 120 else f"about {left / 60:.0f} min left"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)

"""How a command ends: an exit code, and at most one sentence on stderr. A traceback is a bug of ours, and shown as one.

Ctrl-C and SIGTERM end every command alike. A command that has something to say then adds a note to the exception and
lets it go on: `except KeyboardInterrupt as end: end.add_note("run it again to go on"); raise`. Whatever becomes of that
exception on its way, a signal that came decides how the command ends (interrupts.py).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from ..failures import ConfigurationError, RewardcoreError, ServerFailed
from ..interrupts import COMMAND, ENDS, Terminated
from ..words import printable

DONE, FAILED, WRONG_USAGE = 0, 1, 2
INTERRUPTED, TERMINATED = (code for _, code in ENDS.values())
#: Commands that go on where they were stopped.
_GO_ON = ("judge", "reject-sample")
EXIT_CODES = (
    f"Exit codes: {DONE} done; {FAILED} not judged, not reachable or failed; {WRONG_USAGE} wrong usage;"
    f" {INTERRUPTED} ended by Ctrl-C; {TERMINATED} ended by SIGTERM."
)
_UsageError: Any = typer.BadParameter.__base__  # click's; some versions of typer bring it along, others import it


class _Interrupted(Exception):
    """From a KeyboardInterrupt: typer would make an exit code of that, and lose what the command says about it."""


class Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            with COMMAND:
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if ctx.invoked_subcommand in (None, *_GO_ON) and not any(_notes(error)):  # none yet: nothing was begun
                error.add_note("run the same again to go on")
            raise _Interrupted from error


def run(app: typer.Typer) -> int:
    """The exit code; what there is to say has been said."""
    COMMAND.came = None
    try:
        code = app(prog_name="rewardcore", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        if COMMAND.came is not None or isinstance(error, _Interrupted | KeyboardInterrupt):
            return _interrupted(error)
        return _failed(error)
    if COMMAND.came is not None:
        return _interrupted(None)
    return code if isinstance(code, int) else DONE


def _failed(error: BaseException) -> int:
    if isinstance(error, BrokenPipeError):  # whoever reads us has had enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, ServerFailed):
        return _ended(str(error), FAILED)
    if isinstance(error, RewardcoreError):
        code = WRONG_USAGE if isinstance(error, ConfigurationError) else FAILED
        return _ended(" ".join(str(error).split()), code)
    if isinstance(error, _UsageError):
        return _ended(error.format_message(), WRONG_USAGE)
    raise error


def _interrupted(error: BaseException | None) -> int:
    """By the signal that came, else by what was raised."""
    logging.getLogger("asyncio").disabled = True  # where a clean-up that was cut short tells what it has left open
    warnings.simplefilter("ignore")  # and there: a coroutine that never began
    chain = list(_chain(error))
    number = COMMAND.came or (signal.SIGTERM if any(isinstance(e, Terminated) for e in chain) else signal.SIGINT)
    word, code = ENDS[number]
    return _ended(": ".join([word, *dict.fromkeys(_notes(error))]), code)


def _notes(error: BaseException | None) -> Iterator[str]:
    """Of an exception, and of those that it came from: a clean-up may have raised its own in its place."""
    for each in _chain(error):
        yield from getattr(each, "__notes__", [])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _ended(sentence: str, code: int) -> int:
    if sentence:  # none where the help was printed instead
        print(f"rewardcore: {printable(sentence)}", file=sys.stderr)
    return code

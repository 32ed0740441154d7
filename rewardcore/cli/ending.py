"""How a command ends: an exit code, and at most one sentence on stderr. A traceback is a bug of ours, and shown as one.

Ctrl-C and SIGTERM end every command alike. A command that has something to say then adds a note to the exception and
lets it go on: `except KeyboardInterrupt as end: end.add_note("run it again to go on"); raise`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ..failures import ConfigurationError, RewardcoreError, ServerFailed
from ..serving.signals import Terminated, terminating_on_sigterm

DONE, FAILED, WRONG_USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
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
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted from error


def run(app: typer.Typer) -> int:
    """The exit code; what there is to say has been said."""
    try:
        with terminating_on_sigterm():
            code = app(prog_name="rewardcore", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:  # whoever reads us has had enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except _Interrupted as error:
        return _interrupted(error.__cause__)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except ServerFailed as error:
        return _ended(str(error), FAILED)
    except RewardcoreError as error:
        code = WRONG_USAGE if isinstance(error, ConfigurationError) else FAILED
        return _ended(" ".join(str(error).split()), code)
    except _UsageError as error:
        return _ended(error.format_message(), WRONG_USAGE)


def _interrupted(error: BaseException | None) -> int:
    by_kill = isinstance(error, Terminated)
    sentence = ": ".join(["terminated" if by_kill else "interrupted", *getattr(error, "__notes__", [])])
    return _ended(sentence, TERMINATED if by_kill else INTERRUPTED)


def _ended(sentence: str, code: int) -> int:
    if sentence:  # none where the help was printed instead
        print(f"rewardcore: {sentence}", file=sys.stderr)
    return code

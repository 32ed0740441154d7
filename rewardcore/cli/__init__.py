"""The command line, `rewardcore`: thin commands over the library, a file for each. It needs the extra `cli`.

What a command may not do is decide: it reads its flags, calls the library, and prints.
"""

from __future__ import annotations

import sys
from typing import Any

try:
    import typer
except ImportError:
    print("rewardcore: the command line needs typer: pip install 'rewardcore[cli]'", file=sys.stderr)
    sys.exit(2)

from ..failures import ConfigurationError
from . import cache
from .check import check
from .memory import memory
from .simulate import simulate

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="LLM-as-judge rewards for RL training.")
for command in (check, memory):
    app.command(no_args_is_help=True)(command)
app.command()(simulate)
app.add_typer(cache.app, name="cache")
_UsageError: Any = typer.BadParameter.__base__  # click's; some versions of typer bring it along, others import it


def main() -> None:
    """0 is done, 2 is wrong usage. Errors that say what to do are printed as one line, without a traceback."""
    try:
        sys.exit(app(standalone_mode=False))
    except ConfigurationError as error:
        sentence = " ".join(str(error).split())
    except _UsageError as error:
        sentence = error.format_message()
    if sentence:  # none where the help was printed instead
        print(f"rewardcore: {sentence}", file=sys.stderr)
    sys.exit(2)

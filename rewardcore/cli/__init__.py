"""The command line, `rewardcore`: thin commands over the library, a file for each. It needs the extra `cli`.

What a command may not do is decide: it reads its flags, calls the library, and prints.
"""

from __future__ import annotations

import sys
from typing import Annotated

try:
    import typer
except ImportError:
    print("rewardcore: the command line needs typer: pip install 'rewardcore[cli]'", file=sys.stderr)
    sys.exit(2)

from .. import __version__, interrupts
from . import cache, ending
from .check import check
from .doctor import doctor
from .judge import judge
from .memory import memory
from .reject_sample import reject_sample
from .simulate import simulate


def _hyphens(token: str) -> str:
    """`--max_concurrent` is `--max-concurrent`, in every command."""
    return token.replace("_", "-")


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=ending.Commands,
    epilog=ending.EXIT_CODES,
    context_settings={"token_normalize_func": _hyphens},
)
for command in (check, judge, memory):
    app.command(no_args_is_help=True)(command)
app.command()(doctor)
app.command("reject-sample")(reject_sample)  # without arguments, too: the environment may have them all
app.command()(simulate)
app.add_typer(cache.app, name="cache")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"rewardcore {__version__}")
        raise typer.Exit


@app.callback()
def _rewardcore(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """LLM-as-judge rewards for RL training."""


def main() -> None:
    """Ends with one of `ending.EXIT_CODES`; an error is one line that says what to do, never a traceback."""
    interrupts.COMMAND.listen()
    sys.exit(ending.run(app))

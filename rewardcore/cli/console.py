"""What every command prints, and where: people's lines, how far it is, and with --json one document.

With --json the last line of stdout is that document, and what people read goes to stderr. With --quiet people are told
nothing but what went wrong. Not for errors: those are raised, and `main` prints them.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import typer

from ..progress import Tell, showing
from ..words import printable

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors and warnings.")]
Json = Annotated[bool, typer.Option("--json", help="The last line of stdout is one JSON document.")]


class Console(NamedTuple):
    quiet: bool = False
    json: bool = False

    def say(self, text: str) -> None:
        if not self.quiet:
            print(printable(text), file=sys.stderr if self.json else sys.stdout, flush=True)

    def result(self, document: Mapping[str, Any]) -> None:
        """What the command found, for a program that reads it."""
        if self.json:
            print(printable(json.dumps(document, ensure_ascii=False, allow_nan=False)), flush=True)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Tell]:
        """Gives a function to be told (done, total or None, whatever else there is to say)."""
        if self.quiet:
            yield lambda *_: None
        else:
            with showing(what) as tell:
                yield tell

"""`rewardcore cache`: look into a cache of judge replies."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from ..failures import ConfigurationError
from ..http.cache import SqliteCache

app = typer.Typer(no_args_is_help=True, help="Look into a cache of judge replies.")


@app.command()
def explain(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The SQLite file that was given as cache=.")],
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key, or the beginning of one; none lists the newest.")
    ] = "",
) -> None:
    """Print what went into a key: base URL, model, messages, sampling parameters and repeat index."""
    if not path.exists():
        raise ConfigurationError(f"PATH {path} does not exist; give the file that was named as cache=")
    if set(key.lower()) - set("0123456789abcdef"):
        raise ConfigurationError(f"KEY {key!r} is not hexadecimal; run without KEY to list the newest keys")
    with closing(SqliteCache(path)) as cache:
        rows = cache.rows(key)
    if not rows:
        raise ConfigurationError(
            f"no reply in {path} has a key that begins with {key!r}" if key else f"{path} is empty"
        )
    if len(rows) > 1:
        for found, text, _, stored_at in rows:
            stored = datetime.fromtimestamp(stored_at).isoformat(" ", "seconds")
            typer.echo(f"{found[:16]}  {stored}  {' '.join(text.split())[-60:]}")
        typer.echo(f"{len(rows)} newest; `rewardcore cache explain {path} KEY` prints what went into one")
        return
    ((found, text, material, _),) = rows
    matches = sha256(material).hexdigest() == found
    typer.echo(json.dumps(json.loads(material), indent=2, ensure_ascii=False))
    typer.echo(f"\nkey = sha256 of the above as canonical JSON = {found}" + ("" if matches else "  (DOES NOT MATCH)"))
    typer.echo(f"reply: {text}")

"""`rewardcore cache`: look into a cache of judge replies, and make it smaller."""

from __future__ import annotations

import json as json_
import re
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import typer

from ..arguments import check_whole
from ..failures import ConfigurationError
from ..words import printable
from .console import Console, Json, Quiet

app = typer.Typer(no_args_is_help=True, help="Look into a cache of judge replies, and make it smaller.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The SQLite file that was given as cache=.")]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LISTED = 20


@app.command(no_args_is_help=True)
def explain(
    path: File,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key, or the beginning of one; none lists the newest.")
    ] = "",
) -> None:
    """Print what went into a key: base URL, model, messages, sampling parameters and the draw."""
    from ..http.cache_contents import find

    if set(key.lower()) - set("0123456789abcdef"):
        raise ConfigurationError(f"KEY {key!r} is not hexadecimal; run without KEY to list the newest keys")
    rows = find(path, key)
    if not rows:
        raise ConfigurationError(
            f"no reply in {path} has a key that begins with {key!r}" if key else f"{path} is empty"
        )
    if len(rows) > 1:
        for found, text, _, stored_at in rows:
            typer.echo(printable(f"{found[:16]}  {_when(stored_at)}  {' '.join(text.split())[-60:]}"))
        typer.echo(printable(f"{len(rows)} newest; `rewardcore cache explain {path} KEY` prints what went into one"))
        return
    ((found, text, material, _),) = rows
    matches = sha256(material).hexdigest() == found
    typer.echo(printable(json_.dumps(json_.loads(material), indent=2, ensure_ascii=False)))
    typer.echo(f"\nkey = sha256 of the above as canonical JSON = {found}" + ("" if matches else "  (DOES NOT MATCH)"))
    typer.echo(printable(f"reply: {text}"))


@app.command(no_args_is_help=True)
def stats(path: File, quiet: Quiet = False, json: Json = False) -> None:
    """Count what a cache holds: replies by model and endpoint, their age and tokens, the size on disk."""
    from ..http.cache_contents import look_into

    console = Console(quiet, json)
    with console.progress("rows read") as tell:
        found = look_into(path, tell)
    console.say(f"{path}: {found.replies:,} replies, {_size(found.bytes_on_disk)} on disk")
    if found.oldest is not None and found.newest is not None:
        console.say(f"stored from {_when(found.oldest)} to {_when(found.newest)}")
        console.say(f"{found.prompt_tokens:,} tokens of prompts, {found.completion_tokens:,} tokens of replies")
    if found.repeats:
        console.say(f"{found.repeats:,} are further draws of a request")
    for (model, endpoint), count in found.by.most_common(_LISTED):
        console.say(f"{count:>12,}  {model}  at {endpoint}")
    if len(found.by) > _LISTED:
        console.say(f"{'':>12}  and {len(found.by) - _LISTED} more; --json has them all")
    console.result(
        {
            "path": str(path),
            "replies": found.replies,
            "bytes_on_disk": found.bytes_on_disk,
            "oldest": found.oldest,
            "newest": found.newest,
            "prompt_tokens": found.prompt_tokens,
            "completion_tokens": found.completion_tokens,
            "repeats": found.repeats,
            "by": [
                {"model": model, "endpoint": endpoint, "replies": count}
                for (model, endpoint), count in found.by.most_common()
            ],
        }
    )


@app.command(no_args_is_help=True)
def prune(
    path: File,
    older_than: Annotated[str | None, typer.Option(metavar="AGE", help="Such as 30d, 12h, 90m, 2w.")] = None,
    keep_newest: Annotated[int | None, typer.Option(metavar="N", help="All but the N newest.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="What this model said.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and delete nothing.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Delete replies, by one of the three rules, and give the room back to the disk. Judges may go on meanwhile."""
    from ..http import cache_prune
    from ..http.cache_contents import bytes_on_disk

    if [older_than, keep_newest, model].count(None) != 2:
        raise ConfigurationError("say what to delete: one of --older-than, --keep-newest and --model")
    check_whole("--keep-newest", keep_newest, None, least=0)
    console, age = Console(quiet, json), None if older_than is None else _age(older_than)
    try:
        with console.progress("rows read") as tell:
            done = cache_prune.prune(path, tell, older_than=age, keep_newest=keep_newest, model=model, dry_run=dry_run)
        before = bytes_on_disk(path)
        if not dry_run:
            with console.progress("pages given back") as tell:
                cache_prune.shrink(path, tell)
    except KeyboardInterrupt as end:
        end.add_note(f"{path} is whole, and some replies may be gone; run the same again to go on")
        raise
    after = bytes_on_disk(path)
    what, freed = f"{done.deleted:,} of {done.replies:,} replies", max(0, before - after)
    if dry_run:
        console.say(f"{path}: would delete {what}; run it without --dry-run")
    else:
        console.say(f"{path}: deleted {what}, freed {_size(freed)}, {_size(after)} on disk now")
    console.result(
        {"path": str(path), "dry_run": dry_run, "bytes_freed": freed, "bytes_on_disk": after} | done._asdict()
    )


def _age(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if found is None:
        raise ConfigurationError(f"--older-than must be a number and a unit, s, m, h, d or w, as in 30d, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "seconds")


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"

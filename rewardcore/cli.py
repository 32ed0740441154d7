"""The command line, `rewardcore`: thin commands over the library. It needs the extra `cli`."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated

try:
    import typer
except ImportError:
    sys.exit("the command line needs typer: pip install 'rewardcore[cli]'")

from .failures import ConfigurationError
from .http.cache import SqliteCache

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="LLM-as-judge rewards for RL training.")
cache_app = typer.Typer(no_args_is_help=True, help="Look into a cache of judge replies.")
app.add_typer(cache_app, name="cache")


@cache_app.command()
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


@app.command()
def memory(
    model_dir: Annotated[
        str, typer.Argument(metavar="MODEL_DIR", help="A model's directory; its config.json is enough.")
    ],
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the longest prompt.")] = 512,
    new_tokens: Annotated[int, typer.Option(help="Tokens of the longest reply.")] = 64,
    batch_sizes: Annotated[str, typer.Option(help="Batch sizes to predict.")] = "1,2,4,8,16,32",
    device_memory: Annotated[str | None, typer.Option(help="The GPU's memory, such as 24GiB, for advice.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, float16 or bfloat16.")] = "auto",
    plot: Annotated[Path, typer.Option(help="Where the plot goes.")] = Path("memory.png"),
) -> None:
    """Predict the peak memory of judging a batch, for each batch size, from the model's config alone."""
    progress = partial(typer.echo, err=True)
    progress("loading torch and transformers …")
    try:
        from .memory.report import run_memory
    except ImportError as error:
        raise ConfigurationError(f"this needs {error.name}: pip install 'rewardcore[torch,report]'") from error
    run_memory(model_dir, prompt_tokens, new_tokens, batch_sizes, device_memory, dtype, plot, typer.echo, progress)


def main() -> None:
    """Errors that say what to do are printed as one line, without a traceback."""
    try:
        app()
    except ConfigurationError as error:
        sys.exit(f"rewardcore: {error}")

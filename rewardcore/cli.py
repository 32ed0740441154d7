"""The command line, `rewardcore`: thin commands over the library. It needs the extra `cli`."""

from __future__ import annotations

import json
import math
import sys
from contextlib import closing
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
except ImportError:
    print("rewardcore: the command line needs typer: pip install 'rewardcore[cli]'", file=sys.stderr)
    sys.exit(2)

from . import rubrics
from .failures import ConfigurationError, needs_extra
from .http.cache import SqliteCache
from .http.endpoint import Endpoint
from .judge import open_judge
from .memory.arguments import parse_arguments

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="LLM-as-judge rewards for RL training.")
cache_app = typer.Typer(no_args_is_help=True, help="Look into a cache of judge replies.")
app.add_typer(cache_app, name="cache")
_UsageError: Any = typer.BadParameter.__base__  # click's; some versions of typer bring it along, others import it


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


@app.command(no_args_is_help=True)
def check(
    base_url: Annotated[str, typer.Argument(metavar="URL", help="Such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option(help="The name that the endpoint serves.")],
    api_key_env: Annotated[str, typer.Option(help="The variable that holds the key.")] = "OPENAI_API_KEY",
    rubric: Annotated[str, typer.Option(help="A rubric's name, or a TOML file.")] = "quality",
    seconds: Annotated[float, typer.Option(help="How long each of two requests may take.")] = 30.0,
) -> None:
    """Say in seconds whether an endpoint can judge: reachable, key, model, one sample, quota. Exit code 1 if not."""
    if not 0 < seconds < math.inf:
        raise ConfigurationError(f"--seconds must be above 0, not {seconds}")
    endpoint = Endpoint(base_url, model, api_key_env)
    with open_judge("sync", endpoint, rubric=rubrics.named(rubric), cache=None) as judge:
        found = judge.check(seconds)
    typer.echo(str(found))
    if not found.ok:
        raise typer.Exit(1)


@app.command(no_args_is_help=True)
def memory(
    model_dir: Annotated[
        str, typer.Argument(metavar="MODEL_DIR", help="A directory; config.json is enough, no weights are needed.")
    ],
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the longest prompt.")] = 512,
    new_tokens: Annotated[int, typer.Option(help="Tokens of the longest reply.")] = 64,
    batch_sizes: Annotated[str, typer.Option(help="Batch sizes to predict.")] = "1,2,4,8,16,32",
    device_memory: Annotated[
        str | None, typer.Option(help="One GPU's memory, for advice: 24GiB, or 24G for short; 24GB is 24 × 10⁹ bytes.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, float16 or bfloat16.")] = "auto",
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it, too, into this .png.")] = None,
    tensor_parallel: Annotated[int, typer.Option(metavar="N", help="Predict one GPU's share of N.")] = 1,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the code that a model outside transformers brings along.")
    ] = False,
) -> None:
    """Predict the peak memory of judging a batch, for each batch size: the model's config.json is enough."""
    arguments = parse_arguments(
        model_dir,
        prompt_tokens,
        new_tokens,
        batch_sizes,
        device_memory,
        dtype,
        plot,
        tensor_parallel,
        trust_remote_code,
    )
    progress = partial(typer.echo, err=True)
    progress("loading torch and transformers …")
    with needs_extra("torch", "rewardcore memory"):
        from .memory.report import run_memory
    run_memory(arguments, typer.echo, progress)


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

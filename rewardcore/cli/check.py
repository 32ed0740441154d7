"""`rewardcore check`: can this endpoint judge?"""

from __future__ import annotations

import math
from typing import Annotated

import typer

from .. import rubrics
from ..failures import ConfigurationError
from ..http.endpoint import Endpoint
from ..judge import open_judge
from ..words import printable


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
    typer.echo(printable(found))
    if not found.ok:
        raise typer.Exit(1)

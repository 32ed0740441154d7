"""`rewardcore memory`: how much judging a batch will take on a GPU, and with --measure how much it takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..failures import needs_extra
from ..memory.arguments import parse_arguments
from ..words import printable


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
    measure: Annotated[
        bool, typer.Option("--measure", help="Then measure it, on a GPU that nobody else uses: it is filled.")
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
        measure,
    )
    progress = partial(_echo, err=True)
    progress("loading torch and transformers …")
    with needs_extra("torch", "rewardcore memory"):
        from ..memory.report import run_memory
    run_memory(arguments, _echo, progress)


def _echo(line: str, err: bool = False) -> None:
    typer.echo(printable(line), err=err)

"""`rewardcore reject-sample`: how near does a model come to the truth, if it may try several times?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..failures import ConfigurationError
from ..http.endpoint import read_extra_body
from .console import Console, Json, Quiet

if TYPE_CHECKING:
    from ..rejection import Checkpoint

_SERVER, _ASKING = "Where it is served", "How it is asked"
DATA, OUTPUT_DIR = "Coobiw/merged_agiqa5k_prompt_1022", "reject_sampling_results"


def reject_sample(
    model_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR", help="A model's directory or hub name; again for each checkpoint. (env var: MODEL_PATH)"
        ),
    ] = None,
    model_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="What requests and folders call it, one for each path. (env var: MODEL_NAME)"
        ),
    ] = None,
    data: Annotated[
        str, typer.Option(help="A hub's name, or a JSONL or Parquet file: problem, answer, images.")
    ] = DATA,
    num_rollout: Annotated[
        int, typer.Option(envvar="NUM_ROLLOUT", help="Rollouts of each sample.", rich_help_panel=_ASKING)
    ] = 16,
    temperature: Annotated[float, typer.Option(envvar="TEMPERATURE", help="0 to 2.", rich_help_panel=_ASKING)] = 1.0,
    top_p: Annotated[
        float | None, typer.Option(help="Left to the server if not given.", rich_help_panel=_ASKING)
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Of each rollout.", rich_help_panel=_ASKING)] = 4096,
    system: Annotated[str, typer.Option(help="A system prompt.", rich_help_panel=_ASKING)] = "",
    prompt_suffix: Annotated[str, typer.Option(help="A line after each problem.", rich_help_panel=_ASKING)] = "",
    extra_body: Annotated[
        str, typer.Option(metavar="JSON", help="What the server understands beyond that.", rich_help_panel=_ASKING)
    ] = "",
    max_retries: Annotated[
        int,
        typer.Option(envvar="MAX_RETRIES", help="Of a rollout that fails by itself; outages are waited out."),
    ] = 10,
    concurrency: Annotated[int, typer.Option(envvar="CONCURRENCY", help="Samples at once, all their rollouts.")] = 8,
    deadline: Annotated[float, typer.Option(help="Seconds that a rollout may wait and take.")] = 3600.0,
    max_data: Annotated[
        int | None, typer.Option(envvar="MAX_DATA", help="The first so many rows; all if not given.")
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be asked.")
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep every reply in this SQLite file, too.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on where a run of the same configuration was stopped.")] = True,
    output_dir: Annotated[Path, typer.Option(help="Results go to a folder for each model in here.")] = Path(OUTPUT_DIR),
    skip_vllm_launch: Annotated[
        bool, typer.Option("--skip-vllm-launch", help="A server is there, at --model-port.", rich_help_panel=_SERVER)
    ] = False,
    model_port: Annotated[
        int, typer.Option(envvar="MODEL_PORT", help="0 takes any free one.", rich_help_panel=_SERVER)
    ] = 8000,
    base_url: Annotated[
        str, typer.Option(metavar="URL", help="A server is there, elsewhere.", rich_help_panel=_SERVER)
    ] = "",
    api_key_env: Annotated[
        str, typer.Option(help="The variable that holds its key.", rich_help_panel=_SERVER)
    ] = "OPENAI_API_KEY",
    vllm_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARG", help="Goes to vLLM as it stands: --vllm-arg=--dtype=float32.", rich_help_panel=_SERVER
        ),
    ] = None,
    log_dir: Annotated[Path, typer.Option(help="Of the server's log.", rich_help_panel=_SERVER)] = Path("logs"),
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Ask a model each problem several times, and report how near its best answer comes to the truth."""
    from .. import rejection

    console = Console(quiet, json)
    if (base_url or skip_vllm_launch) and vllm_arg:
        raise ConfigurationError(
            "--vllm-arg goes to a server that is started here: leave out --base-url and"
            " --skip-vllm-launch, or --vllm-arg"
        )
    if base_url or skip_vllm_launch:
        if not base_url and not model_port:
            raise ConfigurationError("--model-port must say where the server listens that --skip-vllm-launch speaks of")
        serve = rejection.at(base_url or f"http://127.0.0.1:{model_port}/v1", api_key_env)
    else:
        serve = rejection.started(model_port, log_dir, vllm_arg or [], progress=not quiet)
    outcomes = rejection.reject_sample(
        _checkpoints(
            model_path or _from_environment("MODEL_PATH"),
            model_name or _from_environment("MODEL_NAME"),
            needs_path=not (base_url or skip_vllm_launch),
        ),
        data,
        rejection.Plan(
            num_rollout=num_rollout,
            temperature=temperature,
            max_retries=max_retries,
            concurrency=concurrency,
            max_data=max_data,
            top_p=top_p,
            max_tokens=max_tokens,
            system=system,
            prompt_suffix=prompt_suffix,
            extra_body=read_extra_body(extra_body),
            deadline=deadline,
            cache=cache,
            skip_bad_rows=skip_bad_rows,
            resume=resume,
        ),
        serve=serve,
        output_dir=output_dir,
        say=console.say,
        showing=console.progress,
    )
    for line in rejection.lines_of(outcomes):
        console.say(line)
    console.result({"output_dir": str(output_dir), "checkpoints": [outcome.as_document() for outcome in outcomes]})
    if not all(outcome.is_complete for outcome in outcomes):
        raise typer.Exit(1)


def _from_environment(name: str) -> list[str]:
    """By hand: typer would take a blank in a path for the end of it."""
    value = os.environ.get(name, "").strip()
    return [value] if value else []


def _checkpoints(paths: list[str], names: list[str], needs_path: bool) -> list[Checkpoint]:
    from ..rejection import Checkpoint

    if needs_path and not paths:
        raise ConfigurationError(
            "--model-path (MODEL_PATH) says which model to serve; for a server that is there already, give --base-url"
            " or --skip-vllm-launch"
        )
    if not names:
        raise ConfigurationError("--model-name (MODEL_NAME) says what requests and folders call the model; give one")
    if paths and len(paths) != len(names):
        raise ConfigurationError(
            f"--model-path is given {len(paths)} times and --model-name {len(names)} times; give one name for each path"
        )
    return [Checkpoint(name, path) for name, path in zip(names, paths or [""] * len(names), strict=True)]

"""`rewardcore doctor`: what is in the way of judging, on this machine and at an endpoint, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..failures import ConfigurationError
from ..http.endpoint import Endpoint, check_key_name
from ..judge import open_judge
from ..words import printable
from .console import Console, Json, Quiet
from .diagnosis import Finding, State, diagnose


def doctor(
    base_url: Annotated[str, typer.Argument(metavar="URL", help="An endpoint to ask, too.")] = "",
    model: Annotated[str, typer.Option(help="The name that the endpoint serves.")] = "",
    api_key_env: Annotated[str, typer.Option(help="The variable that holds the key.")] = "OPENAI_API_KEY",
    cache: Annotated[Path, typer.Option(help="The directory, or the file, that is to hold cached replies.")] = Path(),
    seconds: Annotated[float, typer.Option(help="How long each of two requests to the endpoint may take.")] = 30.0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what is in the way of judging: packages, CUDA, limits, cache, endpoint. Exit code 1 if something is wrong."""
    if bool(base_url) != bool(model):
        raise ConfigurationError("to ask an endpoint doctor needs both URL and --model; without either it asks none")
    if not 0 < seconds < float("inf"):
        raise ConfigurationError(f"--seconds must be above 0, not {seconds}")
    if api_key_env:
        check_key_name(api_key_env, "--api-key-env")
    endpoint = Endpoint(base_url, model, api_key_env) if base_url else None
    from .machine import read_machine

    console, findings = Console(quiet, json), []

    def tell(found: list[Finding]) -> None:
        for finding in found:
            if quiet and finding.state in ("warning", "wrong"):
                print(printable(finding), file=sys.stderr)
            console.say(str(finding))
        findings.extend(found)

    found = diagnose(read_machine(cache, api_key_env, lambda doing: quiet or print(printable(doing), file=sys.stderr)))
    tell([finding for finding in found if not (endpoint and finding.what == "key")])  # the endpoint knows better
    if endpoint:
        tell(_asked(endpoint, seconds))
    wrong = [finding.what for finding in findings if finding.state == "wrong"]
    warned = sum(finding.state == "warning" for finding in findings)
    console.say(f"\n{len(wrong)} wrong, {warned} warnings" if wrong or warned else "\nnothing is in the way")
    console.result({"ok": not wrong, "findings": [finding._asdict() for finding in findings]})
    if wrong:
        raise typer.Exit(1)


def _asked(endpoint: Endpoint, seconds: float) -> list[Finding]:
    states: dict[bool | None, State] = {True: "ok", False: "wrong", None: "note"}
    with open_judge("sync", endpoint, cache=None) as judge:
        found = judge.check(seconds)
    return [Finding(what, states[ok], says) for what, ok, says in found.findings]

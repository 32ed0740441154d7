"""`rewardcore simulate`: a simulated judge in the foreground, for whoever wants to try things without one."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..progress import Tell
from ..testing.latency import Profile
from ..testing.profiles import PROFILES, named
from .console import Console, Json, Quiet

if TYPE_CHECKING:
    import asyncio

    from ..testing.replies import SimulatedJudge

_LOOK_SECONDS = 0.2
#: How long it goes on telling after the last request: longer than a plain line waits for the next.
_TELL_SECONDS = 11.0


def with_profile_flags(command: Callable[..., None]) -> Callable[..., None]:
    """One flag for each field of Profile, in place of `**changes`; what is not given stays as the profile has it."""
    signature = inspect.signature(command, eval_str=True)
    *own, _ = signature.parameters.values()
    flags = []
    for field in fields(Profile):
        option = typer.Option(None, help=field.metadata["help"], rich_help_panel="Its temper")
        kind = field.metadata["kind"] | None
        flags.append(inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind))
    command.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    command.__annotations__.update({flag.name: flag.annotation for flag in flags})
    return command


@with_profile_flags
def simulate(
    port: Annotated[int, typer.Option(help="0 takes any free one.")] = 8000,
    profile: Annotated[str, typer.Option(metavar="NAME", help="Its temper; --profiles lists them.")] = "steady",
    profiles: Annotated[bool, typer.Option("--profiles", help="List the profiles, and end.")] = False,
    model: Annotated[str | None, typer.Option(help="The only name to serve; without it, any.")] = None,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random.")] = 0,
    quiet: Quiet = False,
    json: Json = False,
    **changes: Any,
) -> None:
    """Run a simulated judge on 127.0.0.1 until Ctrl-C. Its scores mean nothing; how it answers is up to you."""
    console = Console(quiet, json)
    if profiles:
        for name, (_, line) in PROFILES.items():
            console.say(f"{name:<13} {line}")
        console.result({name: line for name, (_, line) in PROFILES.items()})
        return
    from ..testing.server import listening

    chosen = named(profile, **{name: value for name, value in changes.items() if value is not None})
    with listening(chosen, port=port, model=model, seed=seed) as server, contextlib.ExitStack() as live:
        base_url, judge = f"http://127.0.0.1:{server.port}/v1", server.service.judge

        def ready() -> None:
            where = f"{base_url} --model {model or 'judge'}"
            console.say(
                f"a simulated judge ({profile}) listens at {base_url}; Ctrl-C ends it. In another terminal, try"
            )
            console.say(f"  rewardcore check {where}")
            console.say(f"  rewardcore judge samples.jsonl verdicts.jsonl --base-url {where}")
            console.result({"base_url": base_url})
            # Only now: a bar on the terminal would break the commands above at its width.
            _watch(server.loop, judge, live.enter_context(console.progress("requests served")))

        server.serve(ready)
        stats = server.service.stats()
    seconds = stats["wall_seconds"]
    console.say(
        f"served {judge.requests} requests in {seconds:.0f} s over {stats['connections_opened']} connections"
        + (f": {_statuses(judge.statuses)}; at most {judge.peak_in_flight} at once" if judge.requests else "")
    )
    console.result({"base_url": base_url} | stats)


def _watch(loop: asyncio.AbstractEventLoop, judge: SimulatedJudge, tell: Tell) -> None:
    """Tell now and then, while requests come in: nobody wants to read that nothing happens."""
    seen, changed_at = 0, -_TELL_SECONDS

    def look() -> None:
        nonlocal seen, changed_at
        if judge.requests != seen:
            seen, changed_at = judge.requests, loop.time()
        if loop.time() - changed_at < _TELL_SECONDS:
            refused = Counter({status: count for status, count in judge.statuses.items() if status != 200})
            tell(seen, None, ", ".join(filter(None, (f"{judge.in_flight} in flight", _statuses(refused)))))
        loop.call_later(_LOOK_SECONDS, look)

    look()


def _statuses(statuses: Counter[int]) -> str:
    return ", ".join(f"{count} × {status}" for status, count in sorted(statuses.items()))

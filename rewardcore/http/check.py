"""Whether an endpoint can judge, asked within seconds: is it there, does it take the key, has it the model, one sample.

For people, before a run: nothing is tried again or cached, and a judge's statistics know nothing of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from ..arguments import is_number
from ..failures import ConfigurationError, Denied, Failure, Stalled
from ..reply import Answer
from ..rubrics.rubric import grade, reads_sample
from ..sample import Sample
from ..words import cut, printable
from .drivers.loop_thread import LoopThread
from .reading import ReplyReader
from .request import RequestBuilder
from .settings import Settings
from .transports.httpx_client import AsyncHttpx, Response

_SAMPLE = Sample("What is 6 × 7?", "6 × 7 = 42", ground_truth="42")
_LISTED = 8


class Finding(NamedTuple):
    """`ok` is None for what is no reason not to judge."""

    what: str
    ok: bool | None
    says: str


@dataclass(frozen=True)
class Check:
    """What was found; printed, a line for each."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.ok is not False for finding in self.findings)

    def __str__(self) -> str:
        marks = {True: "ok", False: "NO", None: "-"}
        return "\n".join(f"{what:<10} {marks[ok]:<3} {says}" for what, ok, says in self.findings)


def check(settings: Settings, seconds: float) -> Check:
    """At most so many seconds for each of its two requests; from any thread, also inside a running loop."""
    if not (is_number(seconds) and 0 < seconds < math.inf):
        raise ConfigurationError(f"seconds must be above 0, not {seconds!r}")
    thread = LoopThread.acquire(settings.clock)
    try:
        findings = thread.run(_ask(settings, seconds))
    finally:
        thread.release()
    mask = settings.endpoint.mask()
    return Check(tuple(Finding(what, ok, printable(" ".join(mask(cut(says)).split()))) for what, ok, says in findings))


async def _ask(settings: Settings, seconds: float) -> list[Finding]:
    client = AsyncHttpx(settings.endpoint)
    try:
        return await _findings(settings, client, seconds)
    finally:
        await client.close()


async def _findings(settings: Settings, client: AsyncHttpx, seconds: float) -> list[Finding]:
    endpoint, now = settings.endpoint, settings.clock.now

    async def fetch(body: bytes | None, path: str = "") -> Response:
        try:
            async with asyncio.timeout(seconds):
                return await client.fetch(body, path)
        except TimeoutError:
            raise Stalled(f"{endpoint.host} gave no whole answer within {seconds:g} s") from None

    try:
        began = now()
        status, headers, body = await fetch(None, "/models")
    except Failure as failure:
        return [Finding("reachable", False, str(failure))]
    reachable = Finding("reachable", True, f"{endpoint.host} answered after {1000 * (now() - began):.0f} ms")
    model = _model(endpoint.model, status, body)
    began = now()
    try:
        request = RequestBuilder(endpoint, settings.rubric).build(_SAMPLE)
        status, headers, body = await fetch(request.body)
        reply = ReplyReader(endpoint).read(status, headers, body)
        answer = grade(settings.rubric, reply, *[_SAMPLE] * reads_sample(settings.rubric))
    except Failure as failure:
        answer = Answer(failure=failure)
    key = _key(answer, endpoint.api_key() is not None)
    return [reachable, key, model, _judged(answer, now() - began), _quota(headers)]


def _model(model: str, status: int, body: bytes) -> Finding:
    try:
        names = [str(served["id"]) for served in orjson.loads(body)["data"]] if status == 200 else []
    except (ValueError, KeyError, TypeError):
        names = []
    if model in names:
        return Finding("model", True, f"{model!r} is served")
    listed = ", ".join(names[:_LISTED]) + (" …" if len(names) > _LISTED else "")
    return Finding("model", None, f"{model!r} is not listed; {f'listed are {listed}' if names else 'no model is'}")


def _key(answer: Answer, was_sent: bool) -> Finding:
    if isinstance(answer.failure, Denied):
        return Finding("key", False, str(answer.failure))
    return Finding("key", True, "accepted" if was_sent else "none was sent, and none asked for")


def _judged(answer: Answer, seconds: float) -> Finding:
    if answer.failure is not None:
        return Finding("sample", False, f"{answer.failure.kind}: {answer.failure}")
    tokens = ((answer.reply and answer.reply.usage) or {}).get("completion_tokens")
    wrote = f", {tokens} tokens" if tokens is not None else ""
    return Finding("sample", True, f"score {answer.score:.2f} in {seconds:.2f} s{wrote}")


def _quota(headers: Mapping[str, str]) -> Finding:
    said = [
        f"{headers[f'x-ratelimit-remaining-{unit}']} of {headers.get(f'x-ratelimit-limit-{unit}', '?')} {unit} left"
        for unit in ("requests", "tokens")
        if f"x-ratelimit-remaining-{unit}" in headers
    ]
    return Finding("quota", None, ", ".join(said) or "the endpoint tells of none")

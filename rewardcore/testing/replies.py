"""What a simulated judge answers: the one place, for the server on a socket and for respx alike.

The score is a hash of the messages, so that every mode, in every order, must come back with identical scores.
SimulatedJudge joins the reply to a LatencyModel's decision and counts; it neither waits nor listens.
Not a language model, and not for streaming.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1  # the fastest in the standard library; nothing here is secret
from http import HTTPStatus
from typing import Any, NamedTuple

import orjson

from .latency import LatencyModel, Profile
from .script import Script, Step

ANALYSIS = (
    "The response was read against the rubric. It addresses the question that was asked, its steps follow"
    " from one another, and its tone suits the task; the claims that can be checked were checked, and the"
    " rest were weighed by how much the conclusion leans on them."
)
CREATED = 1_700_000_000  # a constant, so that the same request gives the same bytes twice
BYTES_PER_TOKEN = 4
COMPLETION_TOKENS = len(ANALYSIS) // BYTES_PER_TOKEN
REMEMBERED = 4096  # every mode and every round sends the same bodies: work them out once


class ChatRequest(NamedTuple):
    """What matters of a chat-completions body."""

    model: str
    digest: bytes
    wants_answer: bool  # <answer>true</answer> in place of <score>7</score>
    prompt_tokens: int


def describe(model: str, messages: Sequence[Any]) -> ChatRequest:
    text = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)
    # The form must be spelled out, as an instruction does: a sample may hold an <answer> of its own.
    spelt = b"<answer>true" in text and (b"<answer>false" in text or b"<answer>true/false" in text)
    wants_answer = spelt or b"<answer>X</answer>" in text
    return ChatRequest(model, sha1(text).digest(), wants_answer, len(text) // BYTES_PER_TOKEN)


@lru_cache(maxsize=REMEMBERED)
def read(body: bytes) -> ChatRequest:
    """Raises ValueError, in words for the client, when the body is not a chat-completions request."""
    try:
        document = orjson.loads(body)
        model, messages = document["model"], document["messages"]
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    except (KeyError, TypeError):
        model = messages = None
    if not isinstance(model, str) or not isinstance(messages, list) or not messages:
        raise ValueError("the body needs 'model', a string, and 'messages', a list that is not empty")
    if document.get("stream"):
        raise ValueError("this server does not stream: leave 'stream' out")
    return describe(model, messages)


def grade(request: ChatRequest) -> int:
    """1 to 10; or, where true or false was asked for, 10 for true and 1 for false."""
    if request.wants_answer:
        return 10 if request.digest[0] & 1 else 1
    return 1 + int.from_bytes(request.digest[:4], "little") % 10


def expected_score(messages: Sequence[Any]) -> float:
    """The score from 0 to 1 that a rubric must read from the reply to these messages."""
    return (grade(describe("", messages)) - 1) / 9


@lru_cache(maxsize=REMEMBERED)
def write(request: ChatRequest) -> bytes:
    """The reply body, as an OpenAI-compatible server returns it."""
    score = grade(request)
    if request.wants_answer:
        verdict = "<answer>true</answer>" if score == 10 else "<answer>false</answer>"
    else:
        verdict = f"<score>{score}</score>"
    return write_completion(request, f"{ANALYSIS} {verdict}")


def write_completion(
    request: ChatRequest, content: str | None, finish_reason: str = "stop", refusal: str | None = None
) -> bytes:
    message = {"role": "assistant", "content": content} | ({"refusal": refusal} if refusal is not None else {})
    return orjson.dumps(
        {
            "id": "chatcmpl-" + request.digest.hex(),
            "object": "chat.completion",
            "created": CREATED,
            "model": request.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {
                "prompt_tokens": request.prompt_tokens,
                "completion_tokens": COMPLETION_TOKENS,
                "total_tokens": request.prompt_tokens + COMPLETION_TOKENS,
            },
        }
    )


def write_error(status: int, message: str, code: str | None = None) -> bytes:
    """An OpenAI-style error body."""
    kind = {404: "not_found_error", 429: "rate_limit_exceeded"}.get(
        status, "server_error" if status >= 500 else "invalid_request_error"
    )
    return orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code or kind}})


class Answer(NamedTuple):
    """What to send, and how many seconds after the request arrived."""

    status: int
    seconds: float
    headers: tuple[tuple[str, str], ...]
    body: bytes


class SimulatedJudge:
    """An endpoint without its socket: call `arrive` for each request, and `leave` once it is answered."""

    def __init__(self, latency: LatencyModel, model: str | None = None) -> None:
        self.latency = latency
        self.model = model  # the only model name that is served; None serves any
        self.in_flight = 0
        self.reset()

    def reset(self, profile: Profile | None = None) -> None:
        """Forget what was counted, drawn and scripted, with another profile if one is given; what flies still flies."""
        if profile is None:
            self.latency.reset()
        else:
            self.latency = LatencyModel(profile, self.latency.seed)
        self.script = Script()
        self.requests = 0
        self.peak_in_flight = self.in_flight
        self.statuses: Counter[int] = Counter()

    def arrive(self, body: bytes, now: float) -> Answer:
        self.requests += 1
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        answer = self._answer(body, now)
        self.statuses[answer.status] += 1
        return answer

    def leave(self) -> None:
        self.in_flight -= 1

    def _answer(self, body: bytes, now: float) -> Answer:
        try:
            request = read(body)
        except ValueError as error:
            return Answer(400, 0.0, (), write_error(400, str(error)))
        if self.model is not None and request.model != self.model:
            message = f"the model '{request.model}' does not exist; this server has '{self.model}'"
            return Answer(404, 0.0, (), write_error(404, message, "model_not_found"))
        status, seconds, headers = self.latency.decide(request.digest, self.in_flight, now)
        if status == 200:
            step = self.script.next_step(body, request.digest)
            if step is None:
                return Answer(200, seconds, headers, write(request))
            return perform(step, request, seconds, headers)
        message = f"simulated: {HTTPStatus(status).phrase}"
        return Answer(status, seconds, headers, write_error(status, message))


def perform(step: Step, request: ChatRequest, seconds: float, headers: tuple[tuple[str, str], ...]) -> Answer:
    """The answer that a script has for this request; an error comes at once, unless the script says otherwise."""
    if step.status == 200:
        body = write_completion(request, step.text, step.finish_reason, step.refusal)
        return Answer(200, seconds if step.seconds is None else step.seconds, headers, body)
    if step.retry_after is not None:
        headers = (*headers, ("retry-after", f"{step.retry_after:g}"))
    body = write_error(step.status, f"scripted: {HTTPStatus(step.status).phrase}", step.code)
    return Answer(step.status, step.seconds or 0.0, headers, body)

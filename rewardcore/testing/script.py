"""What certain requests get, whatever the judge would have said: a script, told by a test and kept by the server.

`When` is the test's side, a sentence as `when("It is 41.").fails(429, times=2).scores(7)`; `Script` is the server's.
Every request goes through its steps on its own, however many match, so that no order of sending changes what it gets.
The profile comes first: what it refuses is refused, and costs no step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, TypedDict, Unpack

import orjson

from ..failures import ConfigurationError


class Step(NamedTuple):
    """One answer: a status and, with 200, what the judge says."""

    status: int = 200
    text: str | None = None
    finish_reason: str = "stop"
    refusal: str | None = None
    code: str | None = None
    retry_after: float | None = None
    times: int | None = None  # None is for good
    seconds: float | None = None  # None is what the profile says


class How(TypedDict, total=False):
    """How often, and how slowly: `times=2` (without it, for good), `seconds=0.5` (without it, as the profile says)."""

    times: int
    seconds: float


class When:
    """What the requests get that show a text. Each verb adds a step; after the last one the judge answers as ever."""

    def __init__(self, text: str, tell: Callable[[str, list[Step]], object]) -> None:
        if not isinstance(text, str):
            raise ConfigurationError(f"when(…) takes a text that the judge is shown, not {type(text).__name__}")
        self._text, self._tell = text, tell
        self._steps: list[Step] = []

    def scores(self, score: float, **how: Unpack[How]) -> When:
        return self.says(f"<score>{score}</score>", **how)

    def answers(self, answer: bool, **how: Unpack[How]) -> When:
        return self.says(f"<answer>{str(bool(answer)).lower()}</answer>", **how)

    def says(self, text: str, **how: Unpack[How]) -> When:
        """Any text: another tag, or none, which is `unparsed`."""
        return self._then(Step(text=text, **how))

    def refuses(self, text: str = "I will not judge this.", **how: Unpack[How]) -> When:
        return self._then(Step(refusal=text, **how))

    def truncates(self, text: str = "The response was read against", **how: Unpack[How]) -> When:
        """Cut at the limit of tokens, as `finish_reason` says."""
        return self._then(Step(text=text, finish_reason="length", **how))

    def fails(
        self, status: int, *, code: str | None = None, retry_after: float | None = None, **how: Unpack[How]
    ) -> When:
        """With an HTTP status, such as 429; `code="insufficient_quota"` ends a run at once."""
        if status < 400 or status not in set(HTTPStatus):
            raise ConfigurationError(f"fails(…) takes a status that is an error, such as 429 or 503, not {status}")
        return self._then(Step(status, code=code, retry_after=retry_after, **how))

    def _then(self, step: Step) -> When:
        if self._steps and self._steps[-1].times is None:
            raise ConfigurationError(f"when({self._text!r}): what comes before is for good; give it times=")
        if step.times is not None and (type(step.times) is not int or step.times < 1):
            raise ConfigurationError(f"times must be a whole number above 0, not {step.times!r}; leave it out for good")
        for name in ("seconds", "retry_after"):
            value = getattr(step, name)
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ConfigurationError(f"{name} must be a finite number of at least 0, not {value!r}")
        self._steps.append(step)
        self._tell(self._text, self._steps)
        return self


class Script:
    """The steps of each text, and how far each request is in them. A text told later goes before those told earlier."""

    def __init__(self) -> None:
        self._steps: dict[str, list[Step]] = {}
        self._asked: dict[tuple[str, bytes], int] = {}

    def tell(self, text: str, steps: list[Step]) -> None:
        self._steps.pop(text, None)  # so that it stands last again
        self._steps[text] = steps

    def next_step(self, body: bytes, digest: bytes) -> Step | None:
        """What this request gets now; None where nothing was told, or its steps are used up."""
        if not self._steps:
            return None
        shown = "\n".join(_texts(orjson.loads(body)["messages"]))
        for text, steps in reversed(self._steps.items()):
            if text in shown:
                asked = self._asked[text, digest] = self._asked.get((text, digest), 0) + 1
                return _step_at(steps, asked)
        return None


def _step_at(steps: list[Step], asked: int) -> Step | None:
    for step in steps:
        if step.times is None or asked <= step.times:
            return step
        asked -= step.times
    return None


def _texts(messages: list[Any]) -> list[str]:
    """Contents as texts, and the texts among contents as parts."""
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]

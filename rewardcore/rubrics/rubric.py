"""What a rubric is, and how it is asked: whatever a caller's own one does, it costs no sample but its own."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ..failures import (
    ConfigurationError,
    Refused,
    RubricFailed,
    Truncated,
    Unparsed,
    described,
    is_ctrl_c,
)
from ..notices import Once
from ..reply import Answer, Reply
from ..sample import Sample

Message = dict[str, object]

#: What a rubric says of a sample keeps its meaning. Any other failure that it raises says that the rubric failed: it is
#: not the endpoint's, whatever its class.
_ITS_OWN_WORDS = (Unparsed, Refused, Truncated, RubricFailed)
#: From so many seconds of its thread, or of the wall clock, a rubric holds up the loop that asks it.
_LONG_CPU, _LONG = 0.05, 1.0
_CPU_IS_KNOWN_FOR = 0.005


@runtime_checkable
class Rubric(Protocol):
    """What a judge needs: `messages(sample)`, and `parse(text)` or `parse(text, sample)`, which returns the score.

    `higher_is = "worse"` says that 1.0 is what nobody wants.
    """

    def messages(self, sample: Sample) -> list[Message]: ...

    @property
    def parse(self) -> Callable[..., float]: ...


def check_rubric(rubric: object) -> None:
    if isinstance(rubric, type):
        raise ConfigurationError(f"rubric must be an object, and {rubric.__name__} is a class: make one of it, with ()")
    if isinstance(rubric, str):
        raise ConfigurationError(
            "rubric must be an object such as rewardcore.rubrics.QUALITY, not str;"
            " rewardcore.rubrics.named gives one by its name or its TOML file"
        )
    if not isinstance(rubric, Rubric):
        raise ConfigurationError(
            f"rubric must have messages(sample) and parse(text), as rewardcore.rubrics.QUALITY has; "
            f"{type(rubric).__name__} has not"
        )
    for name in ("messages", "parse"):
        if inspect.iscoroutinefunction(getattr(rubric, name, None)):
            raise ConfigurationError(f"rubric: {name} is async, and nobody would await it: write it with a plain def")
    wanted = [it for it in _parameters(rubric) if it.default is it.empty and it.kind is not it.VAR_KEYWORD]
    if len(wanted) > 2:
        raise ConfigurationError(f"rubric: parse must take (text) or (text, sample), not {len(wanted)} arguments")


def reads_sample(rubric: Rubric) -> bool:
    """Whether it is `parse(text, sample)`: then a reply that samples share is read for each of them."""
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = _parameters(rubric)[1:2]
    return any(it.kind in places and (it.name == "sample" or it.default is it.empty) for it in second)


def _parameters(rubric: Rubric) -> list[inspect.Parameter]:
    """What its parse takes; nothing, where it does not say."""
    try:
        return list(inspect.signature(rubric.parse).parameters.values())
    except (TypeError, ValueError):
        return []


def ask(rubric: Rubric, sample: Sample) -> list[Message]:
    """The messages for a sample; raises RubricFailed, or what a rubric may say of a sample."""
    try:
        messages = rubric.messages(sample)
    except BaseException as error:  # even an exit: it is this sample's alone
        if is_ctrl_c(error) or isinstance(error, _ITS_OWN_WORDS):
            raise
        raise unwritten(error) from error
    if not messages or not isinstance(messages, list | tuple):
        wanted = 'a list of messages, as in [{"role": "user", "content": "…"}]'
        raise RubricFailed(f"the rubric's messages must return {wanted}, not {messages!r:.40}")
    return messages


def unwritten(error: BaseException) -> RubricFailed:
    """What becomes of a sample whose messages cannot be written, over HTTP and in the self mode alike."""
    return RubricFailed(f"the rubric could not write this sample's messages: {described(error)}")


def grade(rubric: Rubric, reply: Reply, *sample: Sample) -> Answer:
    """Read the score out of a reply; a rubric that raises or returns no finite number fails this sample alone."""
    try:
        score = rubric.parse(reply.text, *sample)
        if type(score) is not float:
            score = float(score)
    except _ITS_OWN_WORDS as failure:
        return Answer(reply, failure=failure)
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return Answer(reply, failure=RubricFailed(f"the rubric's parse raised {described(error)}"))
    if score - score != 0.0:  # NaN and the infinities
        return Answer(reply, failure=Unparsed(f"the rubric's parse returned {score}, which is no finite number"))
    return Answer(reply, score)


class LoopTime:
    """Names a rubric that holds up the loop which asks it, once for each of its methods: it delays every judge there.

    A thread's CPU time costs ten times what the wall clock does to read, so it is read a few hundred times a second at
    most: what was used before `begin` since then is at most the wall time that has passed since.
    """

    def __init__(self, rubric: Rubric) -> None:
        self._rubric = rubric
        self._once = Once()
        self._read_at, self._cpu = -math.inf, 0.0

    def begin(self) -> float:
        now = time.perf_counter()
        if now - self._read_at > _CPU_IS_KNOWN_FOR:
            self._read_at, self._cpu = now, time.thread_time()
        return now

    def end(self, method: str, began: float) -> None:
        seconds = time.perf_counter() - began
        if seconds < _LONG_CPU:
            return
        cpu = time.thread_time() - self._cpu - (began - self._read_at)
        if cpu >= _LONG_CPU or seconds >= _LONG:
            name = f"{type(self._rubric).__name__}.{method}"
            advice = ', or use mode "process", whose workers parse' if method == "parse" else ""
            line = (
                "the rubric's %s took %.2f s for one sample, and delays every judge of this process: make it faster%s"
            )
            self._once.say(method, logging.WARNING, line, name, seconds, advice)

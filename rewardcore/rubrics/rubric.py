"""What a rubric is, and how it is asked: whatever a caller's own one does, it costs no sample but its own."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from ..calls import WouldBlock
from ..failures import ConfigurationError, Failure, RubricFailed, Unparsed
from ..reply import Answer, Reply
from ..sample import Sample

Message = dict[str, object]


@runtime_checkable
class Rubric(Protocol):
    """What a judge needs: `messages(sample)`, and `parse(text)` or `parse(text, sample)`, which returns the score.

    With `independent = True`, repeats of a sample are separate draws, never shared, and numbered as they come. Where it
    has `repeat(sample)`, that is the number of the draw: the same request with the same number is the same draw, in the
    cache and between calls, whenever and in whatever order it is asked for. `higher_is = "worse"` says that 1.0 is what
    nobody wants.
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
    for name in ("messages", "parse", "repeat"):
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
    """The messages for a sample; raises RubricFailed, or the Failure that the rubric itself raises."""
    try:
        messages = rubric.messages(sample)
    except Failure:
        raise
    except BaseException as error:  # even an exit: it is this sample's alone
        if _is_not_the_rubrics(error):
            raise
        raise unwritten(error) from error
    if not messages or not isinstance(messages, list | tuple):
        wanted = 'a list of messages, as in [{"role": "user", "content": "…"}]'
        raise RubricFailed(f"the rubric's messages must return {wanted}, not {messages!r:.40}")
    return messages


def unwritten(error: BaseException) -> RubricFailed:
    """What becomes of a sample whose messages cannot be written, over HTTP and in the self mode alike."""
    return RubricFailed(f"the rubric could not write this sample's messages: {type(error).__name__}: {error}")


def says_repeat(rubric: Rubric) -> bool:
    """Whether it numbers its draws by itself."""
    return callable(getattr(rubric, "repeat", None))


def repeat_of(rubric: Any, sample: Sample) -> int:
    """Which draw this sample is, as its rubric says; raises RubricFailed, as for its messages."""
    try:
        repeat = rubric.repeat(sample)
    except Failure:
        raise
    except BaseException as error:
        if _is_not_the_rubrics(error):
            raise
        raise RubricFailed(f"the rubric's repeat raised {type(error).__name__}: {error}") from error
    if type(repeat) is not int or repeat < 0:
        raise RubricFailed(f"the rubric's repeat must be a whole number of at least 0, not {repeat!r:.40}")
    return repeat


def grade(rubric: Rubric, reply: Reply, *sample: Sample) -> Answer:
    """Read the score out of a reply; a rubric that raises or returns no finite number fails this sample alone."""
    try:
        score = rubric.parse(reply.text, *sample)
        if type(score) is not float:
            score = float(score)
    except Failure as failure:
        return Answer(reply, failure=failure)
    except BaseException as error:
        if _is_not_the_rubrics(error):
            raise
        return Answer(reply, failure=RubricFailed(f"the rubric's parse raised {type(error).__name__}: {error}"))
    if score - score != 0.0:  # NaN and the infinities
        return Answer(reply, failure=Unparsed(f"the rubric's parse returned {score}, which is no finite number"))
    return Answer(reply, score)


def _is_not_the_rubrics(error: BaseException) -> bool:
    """Ctrl-C comes to the main thread, from outside; anywhere else the rubric itself raised it."""
    interrupted = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
    return interrupted or isinstance(error, WouldBlock)

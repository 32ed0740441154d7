"""What a rubric is, and how it is asked: whatever a caller's own one does, it costs no sample but its own."""

from __future__ import annotations

import threading
from typing import Protocol, runtime_checkable

from ..calls import WouldBlock
from ..failures import ConfigurationError, Failure, RubricFailed, Unparsed
from ..reply import Answer, Reply
from ..sample import Sample

Message = dict[str, object]


@runtime_checkable
class Rubric(Protocol):
    """What a judge needs. With `independent = True`, repeats of a sample are separate draws, never shared."""

    def messages(self, sample: Sample) -> list[Message]: ...

    def parse(self, text: str) -> float: ...


def check_rubric(rubric: object) -> None:
    if not isinstance(rubric, Rubric):
        raise ConfigurationError(
            f"rubric must have messages(sample) and parse(text), as rewardcore.rubrics.QUALITY has; "
            f"{type(rubric).__name__} has not"
        )


def ask(rubric: Rubric, sample: Sample) -> list[Message]:
    """The messages for a sample; raises RubricFailed, or the Failure that the rubric itself raises."""
    try:
        return rubric.messages(sample)
    except Failure:
        raise
    except BaseException as error:  # even an exit: it is this sample's alone
        if _is_not_the_rubrics(error):
            raise
        raise unwritten(error) from error


def unwritten(error: BaseException) -> RubricFailed:
    """What becomes of a sample whose messages cannot be written, over HTTP and in the self mode alike."""
    return RubricFailed(f"the rubric could not write this sample's messages: {type(error).__name__}: {error}")


def grade(rubric: Rubric, reply: Reply) -> Answer:
    """Read the score out of a reply; a rubric that raises or returns no finite number fails this sample alone."""
    try:
        score = rubric.parse(reply.text)
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

"""How a rubric is asked: whatever it raises is its own sample's failure, but for what was never the rubric's."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rewardcore import ConfigurationError, Sample, Unparsed
from rewardcore.calls import at_work, check_may_wait
from rewardcore.failures import (
    ConnectionFailed,
    DeadlinePassed,
    Denied,
    Failure,
    RateLimited,
    Refused,
    RubricFailed,
    Truncated,
    WrongPath,
)
from rewardcore.reply import Reply
from rewardcore.rubrics.rubric import ask, check_rubric, grade, reads_sample

SAMPLE = Sample("p", "r")
REPLY = Reply("a text", {"completion_tokens": 2})


class Raises:
    def __init__(self, error):
        self.error = error

    def messages(self, sample):
        raise self.error

    def parse(self, text):
        raise self.error


def answer(error):
    """What `ask` and `grade` make of it, as the failures that they raise and return."""
    with pytest.raises(Failure) as caught:
        ask(Raises(error), SAMPLE)
    return caught.value, grade(Raises(error), REPLY)


def in_a_thread(function, *arguments):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(function, *arguments).result()


OWN = [
    ValueError("no"),
    RecursionError("no"),
    MemoryError("no"),
    StopIteration("no"),
    SystemExit("no"),
    asyncio.CancelledError("no"),
    GeneratorExit("no"),
    BaseException("no"),
]


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", [lambda function, *arguments: function(*arguments), in_a_thread], ids=["here", "away"])
def test_whatever_a_rubric_raises_is_its_samples_failure(error, call):
    unwritten, ungraded = call(answer, error)
    assert type(unwritten) is type(ungraded.failure) is RubricFailed
    assert str(unwritten) == f"the rubric could not write this sample's messages: {type(error).__name__}: no"
    assert str(ungraded.failure) == f"the rubric's parse raised {type(error).__name__}: no"
    assert unwritten.__cause__ is error
    assert (ungraded.reply, ungraded.score) == (REPLY, None)


@pytest.mark.parametrize("messages", ["a text", None, [], {}, {"role": "user", "content": "a text"}, 7])
def test_what_is_no_list_of_messages_is_its_samples_failure(messages):
    rubric = Raises(None)
    rubric.messages = lambda sample: messages
    with pytest.raises(RubricFailed, match="the rubric's messages must return a list of messages"):
        ask(rubric, SAMPLE)


def test_ctrl_c_in_the_main_thread_is_not_the_rubrics():
    assert threading.current_thread() is threading.main_thread()
    rubric = Raises(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ask(rubric, SAMPLE)
    with pytest.raises(KeyboardInterrupt):
        grade(rubric, REPLY)


def test_a_keyboard_interrupt_in_any_other_thread_is_the_rubrics():
    unwritten, ungraded = in_a_thread(answer, KeyboardInterrupt("mine"))
    assert type(unwritten) is type(ungraded.failure) is RubricFailed
    assert "KeyboardInterrupt: mine" in str(unwritten)
    assert "KeyboardInterrupt: mine" in str(ungraded.failure)


class Waits(Raises):
    """Waits for a judge."""

    def __init__(self):
        pass

    @property
    def error(self):
        check_may_wait()
        return ValueError("it may wait")


def test_a_rubric_that_waits_for_a_judge_while_one_waits_for_it_is_told_what_to_do():
    with at_work(), at_work():
        pass
    assert "it may wait" in str(grade(Waits(), REPLY).failure)
    with at_work():
        with at_work():
            pass
        with pytest.raises(RubricFailed) as caught:
            ask(Waits(), SAMPLE)
        ungraded = grade(Waits(), REPLY).failure
    says = "AsksJudge: a judge was asked by what a judge is waiting for; judge in two steps instead"
    assert str(caught.value).startswith(f"the rubric could not write this sample's messages: {says}")
    assert type(ungraded) is RubricFailed
    assert str(ungraded).startswith(f"the rubric's parse raised {says}")


@pytest.mark.parametrize("kind", [Unparsed, Refused, Truncated, RubricFailed])
def test_what_a_rubric_may_say_of_a_sample_passes_as_it_is(kind):
    failure = kind("the rubric's own words")
    unwritten, ungraded = answer(failure)
    assert unwritten is failure
    assert ungraded.failure is failure
    assert (ungraded.reply, ungraded.score) == (REPLY, None)


@pytest.mark.parametrize("kind", [Failure, RateLimited, Denied, ConnectionFailed, WrongPath, DeadlinePassed])
def test_any_other_failure_that_a_rubric_raises_says_that_the_rubric_failed(kind):
    """It is not the endpoint's, whatever its class."""
    unwritten, ungraded = answer(kind("what it was about"))
    assert type(unwritten) is type(ungraded.failure) is RubricFailed
    assert str(ungraded.failure) == f"the rubric's parse raised {kind.__name__}: what it was about"
    assert f"{kind.__name__}: what it was about" in str(unwritten)
    assert (ungraded.reply, ungraded.score) == (REPLY, None)


class Returns(Raises):
    def __init__(self, score):
        self.score = score

    def parse(self, text):
        return self.score


@pytest.mark.parametrize(("score", "expected"), [(0.5, 0.5), (1, 1.0), (True, 1.0), ("0.25", 0.25), (-3.0, -3.0)])
def test_what_can_be_a_float_is_a_score(score, expected):
    found = grade(Returns(score), REPLY)
    assert (found.score, type(found.score), found.failure) == (expected, float, None)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf"), "nan"])
def test_what_is_no_finite_number_is_unparsed(score):
    found = grade(Returns(score), REPLY)
    assert (found.score, type(found.failure)) == (None, Unparsed)


@pytest.mark.parametrize("score", [None, "seven", [], 1j])
def test_what_is_no_number_at_all_is_the_rubrics_failure(score):
    found = grade(Returns(score), REPLY)
    assert (found.score, type(found.failure)) == (None, RubricFailed)


class Parses:
    """A rubric whose parse is the given function."""

    def __init__(self, parse):
        self.parse = parse

    def messages(self, sample):
        return []


@pytest.mark.parametrize(
    ("parse", "reads"),
    [
        (lambda text: 0.0, False),
        (lambda text, sample: 0.0, True),
        (lambda text, sample=None: 0.0, True),
        (lambda text, judged: 0.0, True),
        (lambda text, strict=True: 0.0, False),
        (lambda *texts: 0.0, False),
        (lambda text, *, sample=None: 0.0, False),
        (float, False),
    ],
)
def test_a_parse_gets_the_sample_if_it_asks_for_it(parse, reads):
    check_rubric(Parses(parse))
    assert reads_sample(Parses(parse)) is reads


@pytest.mark.parametrize("parse", [lambda text, sample, more: 0.0, lambda text, a, b, c: 0.0])
def test_a_parse_that_takes_something_else_is_named_at_once(parse):
    with pytest.raises(ConfigurationError, match=r"parse must take \(text\) or \(text, sample\)"):
        check_rubric(Parses(parse))

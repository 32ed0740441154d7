"""One tree of failures; a class says how its kind is treated."""

import inspect
import pickle
import re

import pytest

from rewardcore import Verdict, failures
from rewardcore.failures import Failure, JudgeClosed, RewardcoreError, Unparsed, ends_run
from rewardcore.reply import Answer, Reply

CLASSES = [c for _, c in inspect.getmembers(failures, inspect.isclass) if issubclass(c, RewardcoreError)]
KINDS = [c for c in CLASSES if issubclass(c, Failure)]


def test_the_tree_in_the_docstring_is_the_tree_in_the_code():
    drawn, path = {}, []
    for line in failures.__doc__.splitlines():
        if found := re.match(r"([│├└─ ]*)(\w+)(?: {2,}|$)", line):
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = path[depth - 1] if depth else None
    parents = {c.__name__: c.__bases__[0].__name__ for c in CLASSES if c is not RewardcoreError}
    assert drawn == {"RewardcoreError": None, **parents}


def test_what_the_tree_calls_retried_is_retryable():
    drawn = set(re.findall(r"(\w+) .*\(retried", failures.__doc__))
    assert drawn == {kind.__name__ for kind in KINDS if kind.retryable}


def test_only_what_every_request_would_share_opens_the_breaker():
    assert {kind.__name__ for kind in KINDS if kind.opens_breaker} == {"Denied", "QuotaExhausted", "NeverAnswered"}
    at_first = {kind.__name__ for kind in KINDS if kind.opens_breaker_at_first}
    assert at_first == {"UnknownHost", "TlsFailed", "WrongPath", "Forbidden"}


def test_no_failure_is_both_final_for_all_and_worth_a_retry():
    assert not [kind for kind in KINDS if kind.opens_breaker and kind.retryable]


def test_no_failure_has_the_status_ok():
    assert {kind.status for kind in KINDS} == {"unparsed", "refused", "truncated", "timeout", "failed"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_survives_the_way_to_another_process(kind):
    failure = kind("what went wrong")
    failure.retry_after = 2.5
    failure.reply = Reply("text", {"prompt_tokens": 1}, 3)
    copy = pickle.loads(pickle.dumps(failure))
    assert (type(copy), str(copy), copy.kind) == (kind, "what went wrong", kind.__name__)
    assert (copy.retry_after, copy.reply) == (2.5, failure.reply)


def test_a_rubric_may_raise_unparsed_as_the_value_error_that_it_is():
    assert issubclass(Unparsed, ValueError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_replied", [False, True])
def test_what_ends_a_run_is_read_from_its_verdict(kind, has_replied):
    verdict = Answer(failure=kind("no")).verdict()
    at_first = kind.opens_breaker_at_first and not has_replied
    assert ends_run(verdict, has_replied) == (kind is JudgeClosed or kind.opens_breaker or at_first)


@pytest.mark.parametrize("error", [None, "", "no kind at all", "Counter: of nothing", "annotations: none", "Status: x"])
def test_whatever_else_a_verdict_says_ends_no_run(error):
    assert not ends_run(Verdict("failed", error=error), has_replied=False)

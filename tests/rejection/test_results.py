"""One problem's rollouts, in any order, and the result that they make."""

import itertools

import pytest

from rewardcore import Verdict
from rewardcore.rejection.problems import Problem
from rewardcore.rejection.results import FIELDS, Counts, Result


def valid(number, truth=3.0):
    return Verdict("ok", abs(number - truth), f"so <answer>{number}</answer>")


UNPARSED = [Verdict(status, text="well") for status in ("unparsed", "refused", "truncated")]
FAILED = [Verdict("failed", error="Transient: 500"), Verdict("timeout", error="DeadlinePassed: late")]


def result_of(verdicts, order=None):
    result = Result(Problem(7, "line 8", "How good is it?", 3.0), len(verdicts))
    for rollout in order or range(len(verdicts)):
        result.add(rollout, verdicts[rollout])
    return result


def test_a_result_has_the_fields_that_were_promised():
    result = result_of([valid(4.0), UNPARSED[0], valid(2.5), FAILED[0]])
    document = result.document()
    assert tuple(document) == (*FIELDS, "num_unparsed_rollouts", "num_failed_rollouts")
    assert document == {
        "index": 7,
        "problem": "How good is it?",
        "ground_truth": 3.0,
        "min_error": 0.5,
        "num_valid_rollouts": 2,
        "num_total_rollouts": 4,
        "best_response": {"response": "so <answer>2.5</answer>", "pred_value": 2.5, "error": 0.5},
        "all_errors": [1.0, 0.5],
        "num_unparsed_rollouts": 1,
        "num_failed_rollouts": 1,
    }


def test_the_order_in_which_rollouts_come_changes_nothing():
    verdicts = [valid(2.5), valid(3.5), UNPARSED[1], FAILED[1]]
    found = [result_of(verdicts, order).document() for order in itertools.permutations(range(4))]
    assert found.count(found[0]) == len(found)
    assert found[0]["best_response"]["response"] == "so <answer>2.5</answer>", "the first of two that are as near"


def test_a_reply_without_a_number_is_unparsed_and_no_reply_is_failed():
    assert result_of(UNPARSED).counts == Counts(unparsed=3)
    assert result_of(FAILED).counts == Counts(failed=2)


@pytest.mark.parametrize(
    ("verdicts", "is_failed"),
    [(FAILED, True), ([*FAILED, UNPARSED[0]], False), ([*FAILED, valid(1)], False), (UNPARSED, False)],
)
def test_a_sample_is_failed_where_no_rollout_could_be_had(verdicts, is_failed):
    assert result_of(verdicts).is_failed == is_failed


def test_what_the_first_failure_said_is_kept():
    assert result_of([UNPARSED[0], *FAILED]).why == "Transient: 500"


def test_without_a_valid_rollout_there_is_no_error_and_no_best():
    document = result_of([*UNPARSED, *FAILED]).document()
    assert (document["min_error"], document["best_response"], document["all_errors"]) == (None, None, [])

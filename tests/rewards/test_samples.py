"""A trainer's ground truth, as a judge is shown it."""

import math

import numpy
import pytest

from rewardcore import ConfigurationError
from rewardcore.rewards.samples import sample_of


@pytest.mark.parametrize(
    ("ground_truth", "shown"),
    [
        ("42", "42"),
        ("", ""),
        (42, "42"),
        (["a", "b"], '["a","b"]'),
        (numpy.array([1, 2]), "[1,2]"),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (None, None),
        (math.nan, None),
        (numpy.float32("nan"), None),
    ],
)
def test_a_ground_truth_is_shown_as_text_and_a_missing_one_not_at_all(ground_truth, shown):
    assert sample_of("?", "!", ground_truth).ground_truth == shown


def test_one_that_cannot_be_shown_is_told():
    with pytest.raises(ConfigurationError, match="ground_truth cannot be shown to a judge"):
        sample_of("?", "!", object())

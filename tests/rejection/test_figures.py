"""Figures of errors: those of a whole population, and what becomes of none, of one, and of huge ones."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.rejection.figures import EDGES, Errors
from rewardcore.rejection.results import Counts


def document(error, valid=2, unparsed=1, failed=0):
    return {
        "min_error": error,
        "num_valid_rollouts": valid,
        "num_unparsed_rollouts": unparsed,
        "num_failed_rollouts": failed,
    }


def errors_of(*values):
    errors = Errors()
    for value in values:
        errors.add(document(value))
    return errors


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_the_figures_are_those_of_all_errors_and_no_estimate_from_some(values):
    found = errors_of(*values).figures()
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.median == pytest.approx(statistics.median(values))
    assert found.std == pytest.approx(statistics.pstdev(values), abs=1e-9)
    assert (found.min, found.max) == (min(values), max(values))


@given(st.lists(st.floats(0, 1.7e308), min_size=1, max_size=20))
def test_every_figure_is_a_number_that_json_has(values):
    found = errors_of(*values).figures()
    json.dumps(found.as_document(), allow_nan=False)


@pytest.mark.parametrize(
    ("error", "place"),
    [(0.0, 0), (0.0999, 0), (0.1, 1), (0.2, 2), (0.3, 3), (0.499, 3), (0.5, 4), (0.8, 5), (1.0, 6), (1.5, 7), (2.0, 8)],
)
def test_a_bin_begins_with_its_edge_and_ends_before_the_next(error, place):
    found = errors_of(error).figures()
    assert [each.count for each in found.bins] == [int(number == place) for number in range(9)]
    assert found.bins[place].share == 1.0


def test_the_bins_are_those_that_were_promised():
    assert (0, 0.1, 0.2, 0.3, 0.5, 0.8, 1, 1.5, 2, math.inf) == EDGES
    words = [str(each) for each in errors_of().figures().bins]
    assert words[0] == "[0, 0.1)"
    assert words[-1] == "[2, ∞)"


@given(st.lists(st.floats(0, 5)))
def test_every_valid_sample_is_in_one_bin(values):
    assert sum(each.count for each in errors_of(*values).figures().bins) == len(values)


def test_samples_without_an_answer_and_failed_ones_are_counted_apart():
    errors = errors_of(0.5, 0.25)
    for unparsed, failed in [(3, 0), (1, 2), (0, 3)]:
        errors.add(document(None, 0, unparsed, failed))
    found = errors.figures()
    assert (found.total, found.valid, found.unanswered, found.failed) == (5, 2, 2, 1)
    assert found.rollouts == Counts(valid=4, unparsed=6, failed=5)
    assert found.share(found.valid) == pytest.approx(2 / 5)


def test_where_there_is_no_error_there_is_no_figure():
    found = Errors().figures()
    assert (found.total, found.mean, found.median, found.std, found.min, found.max) == (0, *[None] * 5)
    assert {each.share for each in found.bins} == {0.0}

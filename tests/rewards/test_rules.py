"""The rule of each data source, and what the default one takes for the same answer."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore import ConfigurationError
from rewardcore.rewards import rules
from rewardcore.rewards.rules import answer_matches, answer_of, register_rule, task_score


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("It is <answer> 42 </answer>.", "42"),
        ("<answer>41</answer> no, <answer>42</answer>", "42"),
        ("<think><answer>41</answer></think><answer>42</answer>", "42"),
        ("thinking aloud</think> 42", "42"),
        ("<answer>42</answer> and <answer>never closed", "<answer>42</answer> and <answer>never closed"),
        ("42", "42"),
        ("<think>never done", ""),
        ("", ""),
    ],
)
def test_the_last_answer_counts_or_else_the_whole_text(response, answer):
    assert answer_of(response) == answer


@pytest.mark.parametrize(
    ("answer", "ground_truth", "score"),
    [
        ("Paris", "paris", 1.0),
        ("  New \n York. ", "new york", 1.0),
        ("Paris", "pairs", 0.0),  # the letters of one are the letters of the other
        ("42", "42.0", 1.0),
        ("42", 42, 1.0),
        ("1,234.50", "1234.5", 1.0),
        ("$1,234", "1234", 1.0),
        ("1,23", "123", 0.0),
        ("1/2", "0.5", 1.0),
        ("1/0", "0", 0.0),
        ("1/2/3", "0.5", 0.0),
        ("−3", "-3", 1.0),
        ("1e3", "1000", 1.0),
        ("0.30000000000000004", "0.3", 1.0),
        ("0.3333", "1/3", 0.0),
        ("10000000000000001", "10000000000000002", 0.0),
        ("1e999999999", "1e999999998", 0.0),
        ("nan", "inf", 0.0),
        ("10 cm", "10", 0.0),
        ("", "", 0.0),
        ("Rome", ["Paris", "Rome"], 1.0),
        ("Rome", ("Paris",), 0.0),
    ],
)
def test_texts_and_numbers_are_compared(answer, ground_truth, score):
    assert answer_matches(f"<answer>{answer}</answer>", ground_truth) == score


@pytest.mark.skipif(rules._math_verify() is None, reason="the extra math is not installed")
@pytest.mark.parametrize(
    ("answer", "ground_truth", "score"),
    [
        (r"\frac{1}{2}", "0.5", 1.0),
        ("x+1", "1+x", 1.0),
        ("50%", "0.5", 1.0),
        (r"\sqrt{2}", "2^{1/2}", 1.0),
        ("2^{10}", "1024", 1.0),
        ("x+1", "x+2", 0.0),
        ("a b", "b a", 0.0),
    ],
)
def test_expressions_are_compared_where_math_verify_is_there(answer, ground_truth, score):
    assert answer_matches(answer, ground_truth) == score


def test_without_math_verify_an_expression_is_a_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.setattr(rules, "_math_verify", rules._math_verify.__wrapped__)
    assert answer_matches("x+1", "X + 1") == 0.0
    assert answer_matches("x+1", "X+1") == 1.0


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("x^2+y^{2}", True),
        (r"\frac{1}{2}", True),
        ("2**10", True),
        ("yes", False),
        ("a b", False),  # no number in it: a text
        ("10 cm", False),
        (r"\sum_{i} i", False),
        ("9^9^9", False),
        ("9^{9^9}", False),
        ("9^((9^9))", False),
        ("((9^99)^99)^99", False),
        ("9!", False),
        ("(x+y)^{12}", True),
        ("(x+y)^{13}", False),
        ("(a+b+c+d)^{2}", False),
        ("1" * 200, False),
    ],
)
def test_only_plain_arithmetic_is_shown_to_math_verify(text, is_shown):
    assert rules._is_arithmetic(text) is is_shown


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_matches_itself_however_it_is_written(number):
    assert answer_matches(repr(number), f"{number:.17e}") == 1.0


@given(st.integers(), st.integers())
def test_whole_numbers_match_exactly_when_they_are_equal(one, other):
    assert answer_matches(str(one), other) == float(one == other)


@given(st.text(), st.text())
def test_whatever_is_written_scores_0_or_1_and_alike_both_ways(one, other):
    assert rules._is_same(one, other) is rules._is_same(other, one)


def test_each_data_source_has_its_own_rule(monkeypatch):
    monkeypatch.setattr(rules, "_rules", {})
    register_rule("words", lambda response, ground_truth, extra: len(response.split()) / extra["wanted"])
    assert task_score("words", "one two", None, {"wanted": 4}) == 0.5
    assert task_score("others", "one two", "one two") == 1.0


@pytest.mark.parametrize("score", [math.nan, math.inf, "many", None])
def test_a_rule_that_returns_no_finite_number_is_named(monkeypatch, score):
    monkeypatch.setattr(rules, "_rules", {"odd": lambda *_: score})
    with pytest.raises(ConfigurationError, match="the rule of data source 'odd' must return a"):
        task_score("odd", "a", "a")


@pytest.mark.parametrize("ground_truth", [None, math.nan, {"target": "a"}])
def test_what_the_default_rule_cannot_compare_asks_for_a_rule(ground_truth):
    with pytest.raises(ConfigurationError, match=r"register_rule\('mine', rule\)"):
        task_score("mine", "a", ground_truth)


def test_what_is_no_function_is_no_rule():
    with pytest.raises(ConfigurationError, match="rule must be a plain function"):
        register_rule("mine", 1.0)


def test_a_rule_that_nobody_would_await_is_refused():
    async def awaited(response, ground_truth, extra):
        raise AssertionError

    with pytest.raises(ConfigurationError, match="rule must be a plain function"):
        register_rule("mine", awaited)


def test_a_rule_is_registered_by_a_name():
    with pytest.raises(ConfigurationError, match="data_source must be the name that the rows have, not 7"):
        register_rule(7, answer_matches)

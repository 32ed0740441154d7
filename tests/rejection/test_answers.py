"""What a rollout predicts: a table of texts, and the numbers that are in them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore import Unparsed
from rewardcore.rejection.answers import predicted_value


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("<answer>3.5</answer>", 3.5),
        ("It is blurred. <answer> 2 </answer>\n", 2.0),
        ("<answer>\n-1.25\n</answer>", -1.25),
        ("<ANSWER>4</Answer>", 4.0),
        ("<answer>+.5</answer>", 0.5),
        ("<answer>3.</answer>", 3.0),
        ("<answer>1e-3</answer>", 0.001),
        ("<answer>2.5E+1</answer>", 25.0),
        ("<answer>1</answer> no, <answer>2</answer>", 2.0),
        ("<answer>1</answer> no, <answer>2", 2.0),
        ("so <answer>4.2", 4.2),
        ("so <answer>4.2\n", 4.2),
        ("3.25", 3.25),
        ("  -7\n", -7.0),
        ("<think>3?</think>4", 4.0),
        ("<think><answer>1</answer></think><answer>2</answer>", 2.0),
        ("<answer>1</answer> is wrong</think><answer>2</answer>", 2.0),
        ("<reasoning>hm</reasoning>\n<answer>2", 2.0),
        ("<answer>0</answer>", 0.0),
        ("<answer>İ</answer> <answer>5</answer>", 5.0),
    ],
)
def test_a_number_is_read_from_the_last_answer_or_the_whole_text(text, number):
    assert predicted_value(text) == number


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no <answer>, and the text holds ''"),
        ("<answer></answer>", "<answer> holds ''"),
        ("<answer>", "<answer> holds ''"),
        ("<answer>NaN</answer>", "'NaN', which is not a plain number"),
        ("<answer>inf</answer>", "not a plain number"),
        ("<answer>-Infinity</answer>", "not a plain number"),
        ("<answer>1e999</answer>", "no finite number"),
        ("<answer>7,5</answer>", "not a plain number"),
        ("<answer>1,000</answer>", "not a plain number"),
        ("<answer>3.5/5</answer>", "not a plain number"),
        ("<answer>4 stars</answer>", "not a plain number"),
        ("<answer>3 4</answer>", "not a plain number"),
        ("<answer>0x10</answer>", "not a plain number"),
        ("<answer>1_000</answer>", "not a plain number"),
        ("<answer>٣</answer>", "not a plain number"),
        ("<answer>--3</answer>", "not a plain number"),
        ("<answer>" + "1" * 5000 + "</answer>", "not a plain number"),
        ("<answer>true</answer>", "not a plain number"),
        ("<answer>4 because of its blur", "not a plain number"),
        ("<answer>3</answer> no, <answer>", "<answer> holds ''"),
        ("The score is 3", "no <answer>, and the text holds 'The score is 3'"),
        ("3</answer>", "no <answer>, and the text holds '3</answer>'"),
        ("<think><answer>1</answer></think>", "no <answer>, and the text holds ''"),
        ("<think>1", "no <answer>, and the text holds ''"),
    ],
)
def test_what_is_not_plainly_a_number_is_none(text, says):
    with pytest.raises(Unparsed) as found:
        predicted_value(text)
    assert says in str(found.value)
    assert len(str(found.value)) < 150


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_whatever_number_is_written_is_the_number_that_is_read(number):
    assert predicted_value(f"<answer>{number!r}</answer>") == number


@given(st.text(alphabet="<>/answerthink0123456789.,e+- \n", max_size=60))
def test_whatever_is_written_is_a_finite_number_or_unparsed(text):
    with contextlib.suppress(Unparsed):
        assert abs(predicted_value(text)) < float("inf")

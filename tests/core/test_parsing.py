"""The strict parser: what is plainly a score counts, and whatever is not raises Unparsed."""

import contextlib
import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rewardcore import Unparsed, rubrics
from rewardcore.rubrics.parsing import last_tag, parse_scale, parse_truth, strip_thinking

MEGABYTE = 1_000_000


def score(text):
    return parse_scale(text, "score", 1.0, 10.0)


UNDERSTOOD = {
    "<score>7</score>": 7,
    "<score>1</score>": 1,
    "<score>10</score>": 10,
    "<score>7.5</score>": 7.5,
    "<score>7.</score>": 7,
    "<score>+7</score>": 7,
    "<score>007</score>": 7,
    "<score> \n\t7 \n</score>": 7,
    "<score>7/10</score>": 7,
    "<score> 7.5 / 10.0 </score>": 7.5,
    "<SCORE>7</Score>": 7,
    "analysis first <score>3</score>": 3,
    "<score>3</score> words after it": 3,
    "<score>2</score> no, rather <score>9</score>": 9,
    "<score>oops <score>9</score>": 9,
    "5 out of 5 for style, but <score>1</score>": 1,
    "On a scale of 1 to 10: <score>4</score>": 4,
    "<think><score>10</score></think><score>2</score>": 2,
    "<think>a<think>b</think><score>10</score></think><score>2</score>": 2,
    "<THINKING><score>10</score></Thinking><score>2</score>": 2,
    "<reasoning><score>10</score></reasoning> so: <score>2</score>": 2,
    "the template opened it <score>10</score></think><score>2</score>": 2,
    "I was thinking of <score>2</score>": 2,
    "İ <score>3</score> <Score>9</Score>": 9,
    "İİİ <SCORE>8</SCORE>": 8,
    "<think>İ</think> İ <score>3</score> <Score>9</Score>": 9,
}


@pytest.mark.parametrize(("text", "number"), UNDERSTOOD.items())
def test_a_plain_score_in_the_last_tag_counts(text, number):
    assert score(text) == (number - 1) / 9


NOT_A_SCORE = [
    "",
    "7",
    "on a scale of 1 to 10",
    "5 out of 5 ... 1",
    "7/10",
    "Score: 7",
    "<score></score>",
    "<score> </score>",
    "<score>11/10</score>",
    "<score>11</score>",
    "<score>10.0000001</score>",
    "<score>0</score>",
    "<score>0.99</score>",
    "<score>-1</score>",
    "<score>1e999</score>",
    "<score>1e0</score>",
    "<score>" + "9" * 5000 + "</score>",
    "<score>5/" + "9" * 5000 + "</score>",
    "<score>NaN</score>",
    "<score>nan</score>",
    "<score>inf</score>",
    "<score>Infinity</score>",
    "<score>true</score>",
    "<score>None</score>",
    "<score>7,5</score>",
    "<score>7 5</score>",
    "<score>7 out of 10</score>",
    "<score>4/5</score>",
    "<score>7/0</score>",
    "<score>7/-10</score>",
    "<score>7//10</score>",
    "<score>70%</score>",
    "<score>seven</score>",
    "<score>٧</score>",
    "<score>7️⃣</score>",
    "<score>1_0</score>",
    "<score>0x7</score>",
    "<score>[7]</score>",
    "<score>**7**</score>",
    "<score>1 to 10</score>",
    "<score>X</score>",
    "<score>7",
    "7</score>",
    "</score>7<score>",
    "<score>7</score> wait: <score>",
    "<score>7</score> or <score>8",
    "<score>7</score> or <score>bad</score>",
    "<score><score>7</score></score>",
    "<scores>7</scores>",
    "<score >7</score>",
    "&lt;score&gt;7&lt;/score&gt;",
    "<think><score>9</score></think>",
    "<think><score>9</score>",
    "<think>never closed, and then <score>9</score>",
    "<score>9</score></think>",
    "<score>9</score><think></think></think>",
]


@pytest.mark.parametrize("text", NOT_A_SCORE, ids=lambda text: text[:40] or "nothing")
def test_whatever_is_not_plainly_a_score_is_unparsed(text):
    with pytest.raises(Unparsed):
        score(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no tag here", "no <score>…</score> in the reply, which ends 'no tag here'"),
        ("<think>hm</think>", "there is no text besides thinking"),
        ("<score>11/10</score>", "outside the scale 1 to 10"),
        ("<score>4/5</score>", "a fraction must be of 10"),
        ("<score>7,5</score>", "'7,5', which is not a number"),
        ("<score>7</score><score>", "never closed"),
    ],
)
def test_the_error_says_what_was_found_instead(text, says):
    with pytest.raises(Unparsed, match=re.escape(says)):
        score(text)


def test_the_error_shows_little_of_a_long_reply():
    for text in ("x" * MEGABYTE, f"<score>{'x' * MEGABYTE}</score>"):
        with pytest.raises(Unparsed) as caught:
            score(text)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("inside", "value"), [("true", 1.0), ("false", 0.0), (" True\n", 1.0), ("FALSE", 0.0), ("\ttrue ", 1.0)]
)
def test_truth_is_true_or_false(inside, value):
    assert parse_truth(f"analysis <answer>{inside}</answer>", "answer") == value


@pytest.mark.parametrize("inside", ["", "yes", "no", "1", "0", "1.0", "true.", "not true", "true false", "TRUE!", "t"])
def test_whatever_is_neither_true_nor_false_is_unparsed(inside):
    with pytest.raises(Unparsed):
        parse_truth(f"<answer>{inside}</answer>", "answer")


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("a<think>b</think>c<think>d</think>e", "ace"),
        ("a</think>b", "b"),
        ("a<think>b", "a"),
        ("a</think>b</think>c", "c"),
        ("<think>a</reasoning>b", ""),
        ("<thinking>a<think>b</think>c</thinking>d", "d"),
        ("a < b and b > c", "a < b and b > c"),
    ],
)
def test_thinking_is_dropped_closed_open_or_closed_only(text, visible):
    assert strip_thinking(text) == visible


# Text that is rich in what the parser looks for.
FRAGMENTS = [
    "<score>", "</score>", "<SCORE>", "<answer>", "</answer>", "<think>", "</think>", "<thinking>", "</thinking>",
    "</reasoning>", "true", "false", "7", "10", "11", "-1", ".", "/", "1e9", "nan", "İ", "K", "ſ", "<", ">", "\x00",
    "\n", "\ud800",
]  # fmt: skip
rich = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=5), max_size=20).map("".join)


@given(st.text() | rich)
@example("İ<SCORE>5</SCORE>")
def test_any_text_is_a_score_in_0_to_1_or_unparsed_and_nothing_else(text):
    for parse in (score, rubrics.MONITOR.parse, lambda text: parse_scale(text, "score", -1.0, 0.5)):
        try:
            value = parse(text)
        except Unparsed:
            continue
        assert type(value) is float
        assert 0.0 <= value <= 1.0


@given(st.text() | rich)
def test_any_inside_of_the_tag_is_in_range_or_unparsed(inside):
    with contextlib.suppress(Unparsed):
        assert 0.0 <= score(f"<score>{inside}</score>") <= 1.0


scales = st.tuples(*[st.floats(-1e6, 1e6)] * 2).filter(lambda ends: ends[0] < ends[1])


@given(scales, st.floats(0.0, 1.0))
def test_a_rendered_score_comes_back(scale, share):
    low, high = scale
    number = min(high, max(low, low + share * (high - low)))
    shown = f"{number:.400f}"  # every digit of the float, without an exponent
    assert parse_scale(f"<score>{shown}</score>", "score", low, high) == (number - low) / (high - low)


@given(st.sampled_from([f"{tenths / 10:g}" for tenths in range(10, 101)]), st.sampled_from(["{}", " {} ", "{}/10"]))
def test_every_decimal_of_the_scale_comes_back(shown, form):
    assert score(f"<score>{form.format(shown)}</score>") == (float(shown) - 1) / 9


@given(rich.filter(lambda text: not any(word in text.lower() for word in ("<think", "<reasoning"))))
def test_text_before_the_last_tag_never_matters(before):
    assert score(before + "<score>4</score>") == score("<score>4</score>")
    assert score(before + "<Score>4</SCORE>") == score("<score>4</score>")


@given(rich)
def test_thinking_never_decides(thought):
    thought = thought.replace("</", "")
    with pytest.raises(Unparsed):
        score(f"<think>{thought}<score>9</score>{thought}</think>")
    assert score(f"<think>{thought}<score>9</score></think><score>4</score>") == score("<score>4</score>")


ADVERSARIAL = {
    "open thoughts": "<think>" * (MEGABYTE // 7),
    "closed thoughts": "</think>" * (MEGABYTE // 8),
    "both": "<think></think>" * (MEGABYTE // 15),
    "crossed": "<think></thinking><reasoning>" * (MEGABYTE // 29),
    "open tags": "<score>" * (MEGABYTE // 7),
    "closed tags": "</score>" * (MEGABYTE // 8),
    "brackets": "<" * MEGABYTE,
    "digits": f"<score>{'1' * MEGABYTE}</score>",
    "digits and junk": f"<score>{'1' * MEGABYTE}x</score>",
    "spaces": f"<score>{' ' * MEGABYTE}</score>",
    "spaces and junk": f"<score>{' ' * MEGABYTE}7{' ' * MEGABYTE}x</score>",
    "slashes": f"<score>1{' ' * MEGABYTE}/{' ' * MEGABYTE}1{' ' * MEGABYTE}x</score>",
    "fraction digits": f"<score>1.{'1' * MEGABYTE}/{'1' * MEGABYTE}.x</score>",
    "letters that grow": "İ" * MEGABYTE,
}


@pytest.mark.parametrize("text", ADVERSARIAL.values(), ids=ADVERSARIAL)
def test_a_megabyte_of_malice_is_read_in_linear_time(text):
    """With quadratic work this would run for hours, not milliseconds."""
    with pytest.raises(Unparsed):
        score(text)


def test_last_tag_reads_no_number():
    assert last_tag("<x>a</x><x> b </x>", "x") == " b "


def test_scores_are_finite_for_every_finite_scale():
    assert parse_scale("<score>0</score>", "score", 0.0, math.ulp(0.0)) == 0.0

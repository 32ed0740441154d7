"""Rules: the task score of a response, with no judge. One for each data source; where none is, `answer_matches`.

Pure: a response and its ground truth in, a number out. `answer_matches` takes the last `<answer>`, or the whole text,
and compares texts, then numbers; expressions too where math-verify is installed (extra `math`). That one is only shown
plain arithmetic: it reads words as products of letters, and its time limits work in no thread but the main one.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from numbers import Real
from typing import Any

from ..failures import ConfigurationError, Unparsed
from ..rubrics.parsing import PLAIN_NUMBER, last_tag, strip_thinking

#: response, ground truth, extra info → task score. Above 0 is a response that is worth a judge's opinion.
Rule = Callable[[str, Any, Mapping[str, Any]], float]

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_COMMANDS = r"\\(?:[dt]?frac|sqrt|pi|cdot|times|div|left|right|boxed|pm|%)"
_EXPRESSION = re.compile(rf"(?:{_COMMANDS}|[A-Za-z](?![A-Za-z])|[\d\s.,+\-*/^=(){{}}\[\]%$])*")
#: A power that is quickly computed: its exponent is one number or letter, and not a power itself.
_POWER = re.compile(r"(?:\^|\*\*)\s*(?:[{(]\s*-?([\w./]{1,6})\s*[)}]|-?(\w{1,6}))(?!\s*(?:\^|\*\*))")
_LONGEST_EXPRESSION = 120
#: All exponents of an expression, multiplied; where there are letters, of which there may be three, it is expanded.
_LARGEST_EXPONENT, _LARGEST_OF_LETTERS, _MOST_LETTERS = 1000, 12, 3

_rules: dict[str, Rule] = {}


def register_rule(data_source: str, rule: Rule) -> Rule:
    """Score the data source with this rule, in this process; registering again takes its place."""
    if not isinstance(data_source, str):
        raise ConfigurationError(f"data_source must be the name that the rows have, not {data_source!r:.40}")
    if not callable(rule) or inspect.iscoroutinefunction(rule):
        raise ConfigurationError(
            f"rule must be a plain function of (response, ground_truth, extra_info), not {rule!r:.40}"
        )
    _rules[data_source] = rule
    return rule


def task_score(data_source: str, response: str, ground_truth: Any, extra: Mapping[str, Any] | None = None) -> float:
    """By the rule of the data source."""
    rule = _rules.get(data_source)
    if rule is None:
        if is_missing(ground_truth) or isinstance(ground_truth, Mapping):
            raise ConfigurationError(
                f"data source {data_source!r} has no rule, and the default one compares with a text, a number or a list"
                f" of them, not {ground_truth!r:.40}: call register_rule({data_source!r}, rule)"
            )
        rule = answer_matches
    return finite(rule(response, ground_truth, extra or {}), f"the rule of data source {data_source!r} must return")


def is_missing(ground_truth: Any) -> bool:
    """None, or NaN, which is a table's way to say that there is none."""
    return ground_truth is None or (isinstance(ground_truth, Real) and math.isnan(ground_truth))


def finite(score: Any, who_must: str) -> float:
    """The score as a float; nothing that would poison a batch gets past here."""
    try:
        number = float(score)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{who_must} a number, not {score!r:.40}") from None
    if not math.isfinite(number):
        raise ConfigurationError(f"{who_must} a finite number, not {number}")
    return number


def answer_matches(response: str, ground_truth: Any, extra: Mapping[str, Any] | None = None) -> float:
    """1.0 where the answer is the ground truth, or one of several; else 0.0."""
    answer = answer_of(response)
    listed = isinstance(ground_truth, (list, tuple, set, frozenset)) or getattr(ground_truth, "ndim", 0) > 0
    return float(any(_is_same(answer, str(wanted)) for wanted in (ground_truth if listed else [ground_truth])))


def answer_of(response: str) -> str:
    """The inside of the last `<answer>…</answer>`, or the whole text; without its thinking either way."""
    try:
        return last_tag(response, "answer").strip()
    except Unparsed:
        return strip_thinking(response).strip()


def _is_same(answer: str, wanted: str) -> bool:
    answer, wanted = _normal(answer), _normal(wanted)
    if answer == wanted:
        return bool(wanted)
    numbers = _number(answer), _number(wanted)
    if None not in numbers and _is_close(*numbers):  # type: ignore[arg-type]
        return True
    return _is_arithmetic(answer) and _is_arithmetic(wanted) and _is_equivalent(answer, wanted)


def _normal(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).replace("−", "-").casefold()
    return " ".join(text.split()).rstrip(". ")


def _number(text: str) -> float | int | None:
    """Integers stay exact: two large ones that differ are not the same."""
    text = text.replace("$", "").strip()
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    top, bar, bottom = (part.strip() for part in text.partition("/"))
    if bar:
        numerator, denominator = _number(top) if "/" not in bottom else None, _number(bottom)
        return numerator / denominator if numerator is not None and denominator else None
    if not PLAIN_NUMBER.fullmatch(text) or len(text) > _LONGEST_EXPRESSION:
        return None
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    return number if math.isfinite(number) else None


def _is_close(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def _is_arithmetic(text: str) -> bool:
    """Digits or commands, few letters, operators, small powers: what takes no time and cannot be a word."""
    if len(text) > _LONGEST_EXPRESSION or not _EXPRESSION.fullmatch(text) or not re.search(r"[\d\\]", text):
        return False
    powers = _POWER.findall(text)
    exponents = [int(digits) for power in powers for digits in re.findall(r"\d+", "".join(power))]
    letters = set(re.findall("[A-Za-z]", re.sub(_COMMANDS, "", text)))
    largest = _LARGEST_OF_LETTERS if letters else _LARGEST_EXPONENT
    return (
        len(powers) == len(re.findall(r"\^|\*\*", text))
        and math.prod(exponents) <= largest
        and len(letters) <= _MOST_LETTERS
    )


def _is_equivalent(answer: str, wanted: str) -> bool:
    functions = _math_verify()
    if functions is None:
        return False
    parse, verify = functions
    read = [parse(text if "$" in text else f"${text}$", parsing_timeout=None) for text in (wanted, answer)]
    return all(read) and bool(verify(*read, timeout_seconds=None))


@cache
def _math_verify() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    try:
        from math_verify import parse, verify
    except ImportError:
        return None
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of the time limits that we leave out
    return parse, verify

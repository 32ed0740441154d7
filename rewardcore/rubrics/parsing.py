"""From a judge's text to a score, strictly: pure functions, no rubric and no network.

Whatever is not plainly a valid score raises `Unparsed`. Nothing is clamped, guessed or taken from prose: a wrong
number poisons training, a missing one is only masked.
"""

from __future__ import annotations

import re

from ..failures import Unparsed

_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THINKING_END = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*(?:/\s*([0-9]+(?:\.[0-9]+)?)\s*)?", re.ASCII)
#: A number as a model writes one by itself: no thousands, no fraction, no unit, and nothing that is not finite.
PLAIN_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
#: What nearly every judge writes, read without a pattern.
_PLAIN = {str(number): float(number) for number in range(101)}
_TRUTH = {"true": 1.0, "false": 0.0}


def strip_thinking(text: str) -> str:
    """Drop thinking blocks: closed, never closed, or opened by the chat template and only closed in the text."""
    text = _THINKING.sub("", text)
    end = 0
    for match in _THINKING_END.finditer(text):
        end = match.end()
    return text[end:]


def last_tag(text: str, tag: str) -> str:
    """The inside of the last `<tag>…</tag>`; a tag that is opened after it and never closed is no answer."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if text.count("<") == 2:  # nearly every reply: one tag and nothing else
        start, end = text.rfind(opening), text.rfind(closing)  # near the end, as it was asked for
        if 0 <= start < end:
            return text[start + len(opening) : end]
    visible, lowered = text, _lowered(text)
    if "think" in lowered or "reasoning" in lowered:
        visible = strip_thinking(text)
        lowered = _lowered(visible)
    end = lowered.rfind(closing)
    start = lowered.rfind(opening, 0, end) if end >= 0 else -1
    if start < 0:
        raise Unparsed(f"no <{tag}>…</{tag}> in the reply{_excerpt(visible)}")
    if lowered.find(opening, end) >= 0:
        raise Unparsed(f"the last <{tag}> is never closed{_excerpt(visible)}")
    return visible[start + len(opening) : end]


def unclosed_tag(text: str, tag: str) -> str | None:
    """What follows the last `<tag>` where that is never closed, as before a stop sequence; None where there is none."""
    visible = strip_thinking(text)
    lowered = _lowered(visible)
    start = lowered.rfind(f"<{tag}>")
    if start < 0 or lowered.find(f"</{tag}>", start) >= 0:
        return None
    return visible[start + len(tag) + 2 :]


def parse_scale(text: str, tag: str, low: float, high: float) -> float:
    """The last tag's number on the scale low…high, mapped to 0…1; "7", "7.5" and "7/10" (of `high`) are numbers."""
    inside = last_tag(text, tag)
    if (plain := _PLAIN.get(inside)) is not None and low <= plain <= high:
        return (plain - low) / (high - low)
    match = _NUMBER.fullmatch(inside)
    if match is None:
        raise Unparsed(f"<{tag}> holds {inside[:40]!r}, which is not a number")
    number, denominator = float(match[1]), match[2]
    if denominator is not None and float(denominator) != high:
        raise Unparsed(f"<{tag}> holds {inside[:40]!r}: a fraction must be of {high:g}")
    if not low <= number <= high:
        raise Unparsed(f"<{tag}> holds {inside[:40]!r}, outside the scale {low:g} to {high:g}")
    return (number - low) / (high - low)


def parse_truth(text: str, tag: str) -> float:
    """The last tag's `true` or `false`, as 1.0 or 0.0."""
    inside = last_tag(text, tag)
    try:
        return _TRUTH[inside.strip().lower()]
    except KeyError:
        raise Unparsed(f"<{tag}> holds {inside[:40]!r}, neither true nor false") from None


def _lowered(text: str) -> str:
    """Lower case of the same length, so that offsets hold: İ is the one letter that becomes two."""
    return text.replace("İ", "_").lower()


def _excerpt(text: str) -> str:
    text = " ".join(text[-200:].split())
    return f", which ends {text[-80:]!r}" if text else ": there is no text besides thinking"

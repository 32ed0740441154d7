"""From a rollout's text to the number that it predicts, strictly: pure, and no judgement of how good that number is.

Thinking is removed first. Then the last `<answer>…</answer>` counts, or one that is opened last and never closed, as a
stop sequence leaves it, or else the whole text. Whatever stands there must be one plain number: a sign, decimals and an
exponent are understood. "3.5/5" is none, since nobody says whether it means 3.5 or 0.7, and neither is "7,5",
"4 stars", "NaN" or "1e999". A wrong number would pass for the model's best.
"""

from __future__ import annotations

from ..failures import Unparsed
from ..rubrics.parsing import PLAIN_NUMBER, last_tag, strip_thinking, unclosed_tag

TAG = "answer"
#: Longer than any number that a float can tell apart; and what a thousand digits say is not worth their time.
_LONGEST = 400


def predicted_value(text: str) -> float:
    """Raises Unparsed, in words that say what stood there instead."""
    try:
        inside = last_tag(text, TAG)
    except Unparsed:
        unclosed = unclosed_tag(text, TAG)
        if unclosed is None:
            return _number(strip_thinking(text), f"there is no <{TAG}>, and the text")
        inside = unclosed
    return _number(inside, f"<{TAG}>")


def _number(text: str, where: str) -> float:
    text = text.strip()
    if not PLAIN_NUMBER.fullmatch(text) or len(text) > _LONGEST:
        shown = repr(f"{text[:40]}…" if len(text) > 40 else text)
        raise Unparsed(f"{where} holds {shown}, which is not a plain number")
    number = float(text)
    if number - number != 0.0:
        raise Unparsed(f"{where} holds {text!r:.40}, which is no finite number")
    return number

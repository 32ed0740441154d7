"""What may happen to the pace in each of its states: the whole table, with the reason of each way for people."""

from __future__ import annotations

import math

from .states import Probing, Rate, Start, Window

Asking = Window | Rate
State = Start | Asking | Probing

#: The next state, and the reason. Nothing else leads anywhere.
TRANSITIONS: dict[tuple[type, str], tuple[type, str]] = {
    (Start, "answered"): (Window, "the first answers are in"),
    (Start, "limit"): (Window, "refused with so many in flight"),
    (Start, "halved"): (Window, "nothing gets through, though some are in flight: no more than these"),
    (Start, "silent"): (Probing, "nothing gets through"),
    (Window, "limit"): (Window, "refused with so many in flight"),
    (Window, "grown"): (Window, "so many were borne: more are tried"),
    (Window, "knee"): (Window, "replies are slow: as many tokens a second with another number in flight?"),
    (Window, "trial"): (Window, "some are refused: are half as many?"),
    (Window, "helped"): (Rate, "none were refused at half: it bears so many a second"),
    (Window, "chance"): (Window, "as many were refused at half: that is chance, and overlooked"),
    (Window, "quota"): (Rate, "its headers tell the rate"),
    (Window, "halved"): (Window, "nothing more gets through, though some are in flight: half"),
    (Window, "silent"): (Probing, "nothing gets through"),
    (Window, "heard"): (Window, "it answers again: as before"),
    (Rate, "trial"): (Rate, "some are refused: are half as many?"),
    (Rate, "helped"): (Rate, "none were refused at half: it bears so many a second"),
    (Rate, "chance"): (Window, "as many were refused at half: that is chance, and overlooked"),
    (Rate, "lifted"): (Window, "so many a second are not refused"),
    (Rate, "silent"): (Probing, "nothing gets through"),
    (Probing, "heard"): (Window, "it answers again: as before"),
    (Probing, "heard at a rate"): (Rate, "it answers again: at the rate that it bore"),
}


def said(state: State) -> str:
    """What a state allows, for people."""
    if isinstance(state, Probing):
        return f"one at a time, after {state.pause:.1f} s, until it answers or the deadline has passed"
    return f"{state.window} at once" if state.rate == math.inf else f"{state.rate:.1f} a second"

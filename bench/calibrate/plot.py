"""The fitted endpoint as a picture: seconds a reply and replies a second over load, with what was measured.

matplotlib is the extra `report`; the colours are those of the pace's plots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.calibrate.attempts import Attempt, in_flight
from bench.calibrate.fit import Fit
from bench.calibrate.predict import Row
from bench.profiles.plot import BLUE, ORANGE, RED, SKY
from rewardcore.testing.latency import LatencyModel

_DOTS_PER_INCH = 150
#: Between which quantiles four of five replies lie.
_BAND = (0.1, 0.9)


def draw(fit: Fit, attempts: Sequence[Attempt], recommended: Row, title: str, path: Path) -> None:
    """A PNG at `path`, whose folder is made if need be."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    end = min(fit.highest, math.inf if fit.bears is None else fit.bears)  # beyond its limit there is no load to draw
    loads = [1 + (end - 1) * step / 200 for step in range(201)]
    _draw_seconds(upper, fit, attempts, loads)
    _draw_throughput(lower, fit, recommended, loads)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    for axes in (upper, lower):
        _mark_limit(axes, fit)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    lower.set_xlim(0, 1.03 * fit.highest)
    lower.set_xlabel("requests in flight")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def _draw_seconds(axes: Any, fit: Fit, attempts: Sequence[Attempt], loads: Sequence[float]) -> None:
    model = LatencyModel(fit.profile)
    low, high = ([model.quantile(edge, 1) * _grown(fit, load) for load in loads] for edge in _BAND)
    axes.fill_between(loads, low, high, color=SKY, alpha=0.35, linewidth=0, label="four of five replies, model")
    axes.plot(loads, [fit.seconds(load) for load in loads], color=BLUE, linewidth=1.8, label="mean, model")
    known = in_flight(attempts)
    shown = [a for a in attempts if a.outcome == "replied" and a.is_steady and not a.is_short]
    points = [(known[a], a.seconds) for a in shown]
    axes.scatter(*zip(*points, strict=True), s=9, color="black", alpha=0.25, linewidth=0, label="replies, measured")
    means = [(level.in_flight, level.measured) for level in fit.levels]
    axes.scatter(*zip(*means, strict=True), s=46, color=ORANGE, edgecolor="black", zorder=3, label="mean, measured")
    # A few stragglers would flatten everything else: they are above the picture, and in the words.
    ordered = sorted(seconds for _, seconds in points)
    axes.set_ylim(0, 1.25 * max(ordered[int(0.98 * (len(ordered) - 1))], *high))
    axes.set_ylabel("seconds a reply")


def _draw_throughput(axes: Any, fit: Fit, recommended: Row, loads: Sequence[float]) -> None:
    axes.plot(loads, [load / fit.seconds(load) for load in loads], color=BLUE, linewidth=1.8, label="model")
    means = [(level.in_flight, level.in_flight / level.measured) for level in fit.levels]
    axes.scatter(*zip(*means, strict=True), s=46, color=ORANGE, edgecolor="black", zorder=3, label="measured")
    if fit.doubled <= fit.highest:
        axes.axvline(fit.doubled, color="black", linestyle=(0, (1, 2)), linewidth=1.1, label="the knee: twice as slow")
    axes.axvline(recommended.peak_in_flight, color=BLUE, linestyle=(0, (4, 3)), linewidth=1.1, label="recommended")
    axes.set_ylabel("replies a second")


def _mark_limit(axes: Any, fit: Fit) -> None:
    if fit.limit is None:
        return
    if fit.limit.kind == "at once":
        axes.axvline(fit.limit.value, color=RED, linewidth=1.3, label=f"refused above {fit.limit.value:.0f}")
    elif axes.get_ylabel() == "replies a second":
        axes.axhline(fit.limit.value, color=RED, linewidth=1.3, label=f"refused above {fit.limit.value:.3g} a second")


def _grown(fit: Fit, load: float) -> float:
    return 1.0 + fit.profile.load_growth * (load - 1.0)

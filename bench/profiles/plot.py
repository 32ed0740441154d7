"""One picture of one run: what was allowed, what was in flight, what the endpoint bore, and what it refused.

The colours are Okabe and Ito's, which colour-blind readers tell apart. matplotlib is the extra `report`.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

from bench.profiles.drive import Moment, Played
from bench.profiles.endpoints import Profile

BLUE, SKY, ORANGE, RED = "#0072B2", "#56B4E9", "#E69F00", "#D55E00"
_DOTS_PER_INCH = 150
#: Refusals are counted in bins of a round number of seconds, at least so many.
_BINS = 80


def draw(profile: Profile, played: Played, path: Path) -> None:
    """A PNG at `path`, whose folder is made if need be."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    _draw_flights(upper, profile, played)
    _draw_refusals(lower, played)
    figure.suptitle(f"{profile.name}: {profile.about}", x=0.01, ha="left", fontsize=13, fontweight="bold")
    share = f"{played.refused:,} of {played.requests:,} requests refused ({played.refused_share:.1%})"
    upper.set_title(f"{len(played.makespans)} batches in {played.seconds:,.1f} s; {share}", loc="left", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def _draw_flights(axes: Any, profile: Profile, played: Played) -> None:
    moments = played.moments
    times = [moment.time for moment in moments]
    flights = [moment.in_flight for moment in moments]
    axes.fill_between(times, flights, step="post", color=SKY, alpha=0.45, linewidth=0, label="in flight")
    endpoint = profile.open()
    end = played.seconds
    grid = [end * step / 2000 for step in range(2001)]
    borne = [endpoint.bears(time) for time in grid]
    if None not in borne:
        style = {"linestyle": (0, (4, 3)), "linewidth": 1.1, "zorder": 2.5}  # over the window, which should hide it
        axes.plot(grid, borne, color="black", label="what the endpoint bears", **style)
    windows = [moment.window if moment.rate == math.inf else math.nan for moment in moments]
    axes.step(times, windows, where="post", color=BLUE, linewidth=1.8, label="window")
    rates = [moment.rate * moment.latency if moment.rate < math.inf else math.nan for moment in moments]
    if not all(map(math.isnan, rates)):
        axes.step(times, rates, where="post", color=ORANGE, linewidth=1.8, label="rate × latency, where the rate rules")
    marks = [(moment.time, moment.in_flight) for moment in _refusals(moments)]
    if marks:
        axes.scatter(*zip(*marks, strict=True), marker="x", color=RED, s=22, linewidth=1.2, label="refused", zorder=3)
    for time in itertools.accumulate(played.makespans):
        axes.axvline(time, color="black", linewidth=0.6, alpha=0.35)
    top = max(flights + [value for value in borne if value is not None])
    axes.set_ylim(0, 1.25 * top)
    axes.set_xlim(0, end)
    axes.set_ylabel("requests at once")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.03), ncols=5, frameon=False, fontsize=9)


def _draw_refusals(axes: Any, played: Played) -> None:
    width = next(seconds for seconds in (20.0, 10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1) if _BINS * seconds <= played.seconds)
    counts = [0] * (int(played.seconds / width) + 1)
    for before, after in itertools.pairwise(played.moments):
        counts[int(after.time / width)] += after.refused - before.refused
    axes.bar([width * index for index in range(len(counts))], counts, width, align="edge", color=RED)
    axes.set_ylim(0, max(4, 1.15 * max(counts)))
    axes.yaxis.get_major_locator().set_params(integer=True, nbins=3)
    axes.set_ylabel(f"refused\nin {width:g} s")
    axes.set_xlabel("seconds (virtual); thin lines end a batch")
    axes.spines[["top", "right"]].set_visible(False)


def _refusals(moments: tuple[Moment, ...]) -> list[Moment]:
    """Where something was refused, once for all of an instant."""
    return [after for before, after in itertools.pairwise(moments) if after.refused > before.refused]

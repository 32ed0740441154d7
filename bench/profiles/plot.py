"""One picture of one run: what was allowed and why, what was in flight, what the endpoint bore, and what it refused.

The colours are Okabe and Ito's, which colour-blind readers tell apart. matplotlib is the extra `report`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from bench.profiles.drive import Moment, Played
from bench.profiles.endpoints import Profile

BLUE, SKY, ORANGE, RED, GREEN = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73"
#: Numbers nearer to each other than this share of the width would not be legible.
_GAP = 0.022
_BADGE: dict[str, Any] = {
    **{"ha": "center", "va": "center", "fontsize": 7.5, "color": "white", "annotation_clip": False},
    "bbox": {"boxstyle": "circle,pad=0.22", "facecolor": GREEN, "edgecolor": "none"},
}
_DOTS_PER_INCH = 150
#: Refusals are counted in bins of a round number of seconds, at least so many.
_BINS = 80


def draw(profile: Profile, played: Played, path: Path) -> None:
    """A PNG at `path`, whose folder is made if need be."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    numbers = _numbers(played)
    words = 0.19 * len(numbers) + 0.3  # inches
    figure = Figure(figsize=(9.6, 5.6 + words), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower, list_of_reasons = figure.subplots(3, 1, height_ratios=(4.2, 1, words))
    lower.sharex(upper)
    upper.tick_params(labelbottom=False)
    _draw_flights(upper, profile, played)
    _draw_changes(upper, played, numbers)
    _draw_refusals(lower, played)
    _list_reasons(list_of_reasons, played, numbers)
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
    axes.step(times, [moment.window for moment in moments], where="post", color=BLUE, linewidth=1.8, label="window")
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


def _numbers(played: Played) -> dict[str, int]:
    """Each reason for a change has one, in the order in which they come up."""
    return {reason: number for number, reason in enumerate(dict.fromkeys(one.reason for one in played.changes), 1)}


def _draw_changes(axes: Any, played: Played, numbers: dict[str, int]) -> None:
    """A number above the curve for each change; of those that would cover each other, the rarest reason's."""
    counts = Counter(change.reason for change in played.changes)
    top, gap = axes.get_ylim()[1], _GAP * played.seconds
    marked: list[float] = []
    for change in sorted(played.changes, key=lambda change: (counts[change.reason], change.time)):
        if all(abs(change.time - other) >= gap for other in marked):
            marked.append(change.time)
            axes.axvline(change.time, ymax=0.95, color=GREEN, linewidth=0.5, alpha=0.6, zorder=1.5)
            axes.annotate(str(numbers[change.reason]), (change.time, 0.97 * top), **_BADGE)


def _list_reasons(axes: Any, played: Played, numbers: dict[str, int]) -> None:
    axes.set_axis_off()
    counts = Counter((change.reason, change.state) for change in played.changes)
    lines = []
    for reason, number in numbers.items():
        states = ", ".join(f"{state} {_times(count)}" for (why, state), count in counts.items() if why == reason)
        lines.append(f"{number:2}  {reason} → {states}")
    text = "\n".join(["Why it changed, and to which state:", *lines]) if lines else "It never changed."
    axes.text(0.0, 1.0, text, transform=axes.transAxes, va="top", fontsize=8.5, linespacing=1.35)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


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

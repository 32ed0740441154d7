"""The pictures: how the smallest errors of one checkpoint are distributed, and several checkpoints side by side.

They need matplotlib (extra `report`); without it everything else is written, and people are told before the run
begins. Colours are Okabe and Ito's, which the colour-blind can tell apart; lines differ in their dashes as well.
"""

from __future__ import annotations

import importlib.util
from array import array
from collections.abc import Mapping
from typing import IO, Any

from .figures import Errors, median_of

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#9aa5b1"
_COLOURS = (_BLUE, _ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
#: Where the second histogram ends, and how many bars each has.
CLOSE = 2.0
_BARS = 40
#: A few far ones would push all others into one bar: beyond so many times the 99th percentile they share one.
_FAR = 1.25
_ERROR = "smallest error, |predicted − truth|, in units of the answer"


def missing() -> str:
    """What to tell people where there will be no pictures; nothing where there will be."""
    if importlib.util.find_spec("matplotlib") is not None:
        return ""
    return (
        "matplotlib is not installed, so there will be no pictures, only the figures: pip install 'rewardcore[report]',"
        " now or later; the same command then draws what is done without asking again"
    )


def draw_distribution(file: IO[bytes], name: str, errors: Errors) -> None:
    """Two histograms: all of the smallest errors, and those below 2."""
    figure = _figure(11.0, 4.4)
    ordered = array("d", sorted(errors.values))
    everything, close = figure.subplots(1, 2)
    _histogram(everything, ordered, _reach(ordered), "every valid sample")
    _histogram(close, array("d", (error for error in ordered if error < CLOSE)), CLOSE, f"error below {CLOSE:g}")
    figure.suptitle(f"{name}: smallest error of each sample", x=0.01, ha="left", size=12, weight="bold")
    _save(figure, file)


def draw_comparison(file: IO[bytes], errors: Mapping[str, Errors]) -> None:
    """How large a share of each checkpoint's samples is at most so far from the truth."""
    figure = _figure(9.0, 5.0)
    axes = figure.add_subplot()
    reach = max([CLOSE, *(_reach(array("d", sorted(of.values))) for of in errors.values())])
    for number, (name, of) in enumerate(errors.items()):
        ordered = sorted(of.values)
        # What has no valid answer is never near the truth: it keeps the line below 100 %.
        samples = len(ordered) + of.unanswered
        median = median_of(ordered)
        label = f"{name} (median {median:.3g})" if median is not None else f"{name} (no valid answer)"
        shares = [100.0 * (place + 1) / samples for place in range(len(ordered))]
        axes.step(
            [0.0, *ordered, max([reach, *ordered[-1:]])], [0.0, *shares, *(shares[-1:] or [0.0])], where="post",
            color=_COLOURS[number % len(_COLOURS)], linestyle=_DASHES[number % len(_DASHES)], linewidth=2, label=label,
        )  # fmt: skip
    axes.set(xlim=(0, reach), ylim=(0, 102), xlabel=_ERROR, ylabel="samples, % of all")
    axes.set_title("samples whose best rollout is at most so far from the truth", loc="left", size=12, weight="bold")
    axes.legend(loc="lower right", frameon=False)
    _tidy(axes)
    axes.grid(axis="x", color="#eef0f3")
    _save(figure, file)


def _histogram(axes: Any, ordered: array[float], reach: float, title: str) -> None:
    far = sum(error > reach for error in reversed(ordered)) if len(ordered) and ordered[-1] > reach else 0
    shown = ordered[: len(ordered) - far]
    edges = [reach * place / _BARS for place in range(_BARS + 1)]
    axes.hist(shown, bins=edges, color=_BLUE, edgecolor="white", linewidth=0.5)
    if far:
        width = reach / _BARS
        axes.bar(reach + 1.5 * width, far, width, color=_GREY, edgecolor="white", hatch="///")
        axes.annotate(
            f"{far:,} above {reach:.3g},\nat most {ordered[-1]:.4g}", (reach + 1.5 * width, far), (0, 6), size=8,
            textcoords="offset points", ha="right", va="bottom", color="#4a5560",
        )  # fmt: skip
    median = median_of(ordered)
    if median is None:
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", va="center", color="#4a5560")
        axes.set_ylim(0, 1)
    else:
        axes.axvline(median, color=_ORANGE, linewidth=1.6, linestyle=(0, (5, 3)), label=f"median {median:.3g}")
        axes.legend(loc="lower right", bbox_to_anchor=(1.01, 0.985), frameon=False, borderpad=0.2)
    axes.set_title(f"{title} (n = {len(ordered):,})", loc="left", size=10.5)
    axes.set(xlabel=_ERROR, ylabel="samples")
    axes.set_xlim(0, reach * (1 + 3 / _BARS) if far else reach)
    axes.margins(y=0.12)
    axes.yaxis.get_major_locator().set_params(integer=True)
    _tidy(axes)


def _reach(ordered: array[float]) -> float:
    """How far to the right it is worth drawing."""
    if not ordered or ordered[-1] <= 0.0:
        return 1.0
    usual = ordered[(99 * (len(ordered) - 1)) // 100]
    return _FAR * usual if 0.0 < 2 * _FAR * usual < ordered[-1] else ordered[-1]


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb")
    axes.set_axisbelow(True)


def _save(figure: Any, file: IO[bytes]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).print_figure(file, dpi=160, format="png", metadata={"Software": None})

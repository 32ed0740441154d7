"""What a finished run leaves: its results as one JSON list, its figures as a page of text, and a picture.

Everything is read from the journal, one result at a time, so that a million cost no memory but eight bytes each. A file
is there whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO

import orjson

from ..files.atomic import explained, write_atomically
from . import plots
from .figures import Errors, Figures
from .plan import Checkpoint, Plan
from .results import FIELDS

RESULTS, STATISTICS, PICTURE = "reject_sampling_results.json", "statistics.txt", "error_distribution.png"


def write_results(path: Path, documents: Iterable[bytes], max_data: int | None = None) -> Errors:
    """Lines of the journal, in order, as a JSON list; and their errors. Those beyond `max_data` are left out."""
    errors = Errors()
    with write_atomically(path) as file:
        file.write(b"[")
        between = b"\n"
        for line in documents:
            document = orjson.loads(line)
            if max_data is not None and document["index"] >= max_data:
                break
            errors.add(document)
            file.write(between + orjson.dumps({name: document[name] for name in FIELDS}))
            between = b",\n"
        file.write(b"\n]\n")
    return errors


def write_figures(directory: Path, checkpoint: Checkpoint, plan: Plan, data: str, figures: Figures, bad: int) -> None:
    with write_atomically(directory / STATISTICS) as file:
        file.write(statistics_text(checkpoint, plan, data, figures, bad).encode())


def write_picture(path: Path, draw: Callable[[IO[bytes]], object]) -> bool:
    """Whether there is one: without matplotlib there is none, and none of an earlier run is left to mislead."""
    if plots.missing():
        with explained(path):
            path.unlink(missing_ok=True)
        return False
    with write_atomically(path) as file:
        draw(file)
    return True


def statistics_text(checkpoint: Checkpoint, plan: Plan, data: str, figures: Figures, bad: int) -> str:
    """The whole of statistics.txt."""
    counts = figures.rollouts
    asked = [
        ["model", checkpoint.name],
        ["model path", checkpoint.path or "not told"],
        ["data", data],
        ["rollouts", f"{plan.num_rollout} a sample"],
        ["temperature", f"{plan.temperature}"],
        ["max retries", f"{plan.max_retries}"],
    ]
    samples = [
        ["total", f"{figures.total:,}", ""],
        ["valid", f"{figures.valid:,}", _percent(figures.share(figures.valid))],
        ["no valid answer", f"{figures.unanswered:,}", _percent(figures.share(figures.unanswered))],
        ["failed", f"{figures.failed:,}", _percent(figures.share(figures.failed))],
    ]
    if bad:
        samples.append(["bad rows, skipped", f"{bad:,}", ""])
    rollouts = [["total", f"{counts.total:,}", ""]] + [
        [name, f"{count:,}", _percent(count / counts.total if counts.total else 0.0)]
        for name, count in (("valid", counts.valid), ("unparsed", counts.unparsed), ("failed", counts.failed))
    ]
    errors = [[name, number(getattr(figures, name))] for name in ("mean", "median", "std", "min", "max")]
    bins = [["error", "samples", ""], *([str(each), f"{each.count:,}", _percent(each.share)] for each in figures.bins)]
    sections = [
        (f"rejection sampling of {checkpoint.name}", aligned(asked, "<<")),
        ("samples", aligned(samples, "<>>")),
        ("rollouts", aligned(rollouts, "<>>")),
        ("smallest error of each valid sample, |predicted − truth|", aligned(errors, "<>")),
        ("how many valid samples have an error of", aligned(bins, "<>>")),
    ]
    return "\n".join(
        "".join(f"{line}\n" for line in (title, *(f"  {row}" for row in rows))) for title, rows in sections
    )


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Each column as wide as its widest cell, set to the side that `sides` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}" if abs(value) < 1e9 else f"{value:.4e}"


def _percent(share: float) -> str:
    return f"{share:.1%}"

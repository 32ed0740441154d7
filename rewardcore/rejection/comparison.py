"""Several checkpoints side by side: a table for people and one for programs, and a picture of how near each comes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..files.atomic import write_atomically
from . import plots
from .figures import EDGES, Errors, Figures
from .plan import Checkpoint
from .report import aligned, number, write_picture

#: Shares of samples that are at most so far from the truth, which is what checkpoints are chosen by.
_WITHIN = (0.1, 0.5, 1.0)
_NAMES = ("comparison.json", "comparison.md", "comparison.png")


@dataclass(frozen=True)
class Outcome:
    """What became of one checkpoint: its figures, or why there are none."""

    checkpoint: Checkpoint
    directory: Path
    figures: Figures | None = None
    errors: Errors | None = None
    bad_rows: int = 0
    error: Exception | None = None

    @property
    def is_complete(self) -> bool:
        return self.figures is not None and not self.figures.failed

    def as_document(self) -> dict[str, Any]:
        found = {"model_name": self.checkpoint.name, "model_path": self.checkpoint.path, "error": None}
        if self.error is not None:
            return found | {"error": str(self.error)}
        assert self.figures is not None
        return found | {"directory": str(self.directory), "bad_rows": self.bad_rows} | self.figures.as_document()


def table(outcomes: list[Outcome]) -> list[list[str]]:
    rows = [["checkpoint", "samples", "valid", "failed", "mean", "median", "std", *(f"< {edge:g}" for edge in _WITHIN)]]
    for outcome in outcomes:
        figures = outcome.figures
        if figures is None:
            rows.append([outcome.checkpoint.name, "not sampled", *[""] * (len(rows[0]) - 2)])
            continue
        within = [sum(each.count for each in figures.bins[: EDGES.index(edge)]) for edge in _WITHIN]
        rows.append(
            [
                outcome.checkpoint.name,
                f"{figures.total:,}",
                f"{figures.share(figures.valid):.1%}",
                f"{figures.failed:,}",
                *(number(value) for value in (figures.mean, figures.median, figures.std)),
                *(f"{figures.share(count):.1%}" for count in within),
            ]
        )
    return rows


def lines_of(outcomes: list[Outcome]) -> list[str]:
    """For a terminal."""
    rows = table(outcomes)
    return aligned(rows, "<" + ">" * (len(rows[0]) - 1))


def write_comparison(directory: Path, outcomes: list[Outcome]) -> list[str]:
    """The names of the files that were written."""
    as_json, as_markdown, as_picture = (directory / name for name in _NAMES)
    with write_atomically(as_json) as file:
        file.write(orjson.dumps([each.as_document() for each in outcomes], option=orjson.OPT_INDENT_2) + b"\n")
    rows = table(outcomes)
    rows.insert(1, ["---", *["---:"] * (len(rows[0]) - 1)])
    with write_atomically(as_markdown) as file:
        file.write(
            "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows).encode()
        )
    sampled = {each.checkpoint.name: each.errors for each in outcomes if each.errors is not None}
    is_drawn = write_picture(as_picture, lambda file: plots.draw_comparison(file, sampled))
    return list(_NAMES if is_drawn else _NAMES[:2])

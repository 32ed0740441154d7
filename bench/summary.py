"""The end of a benchmark run, for people: modes side by side, the source documents' claims, and the client's costs.

Comparisons are made here and only here, after the check that all compared runs did equal work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench import records
from bench.records import Record
from bench.runner import Run, check_equal_work
from bench.scenarios import CLAIMS, SOURCES, SWEEP, Claim


@dataclass
class Results:
    """What a session has measured so far."""

    runs: dict[str, Run] = field(default_factory=dict)
    others: list[Record] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.runs and not self.others

    def add(self, run: Run) -> None:
        self.runs[run.scenario.id] = run

    def note(self, title: str, lines: list[str], figures: list[Record]) -> None:
        """A measurement that is no run of the grid: its own few lines, and its records."""
        self.notes.setdefault(title, []).extend(lines)
        self.others.extend(figures)

    def groups(self) -> dict[str, list[Run]]:
        """Runs of the grid that belong side by side, sync first."""
        found: dict[str, list[Run]] = {}
        for run in self.runs.values():
            if "/" in run.scenario.id:
                found.setdefault(run.scenario.group, []).append(run)
        return {group: sorted(runs, key=_is_not_baseline) for group, runs in found.items()}

    def baseline(self, run: Run) -> Run | None:
        """What the run's speed-up is over: sync of its size; in the self mode, batch size 1."""
        others = self.groups().get(run.scenario.group, []) if "/" in run.scenario.id else []
        return next((other for other in others if not _is_not_baseline(other)), None)

    def records(self) -> Iterator[Record]:
        for run in self.runs.values():
            yield from records.records_of(run, self.baseline(run))
        yield from self.others


def _is_not_baseline(run: Run) -> bool:
    return run.scenario.batch_size != 1 if run.scenario.mode == "self" else run.scenario.mode != "sync"


def render(results: Results) -> Iterator[str]:
    for group, runs in results.groups().items():
        check_equal_work(runs)
        yield from _table(group, _HEADINGS, [_row(run, results.baseline(run)) for run in runs])
    claims = [_claim_row(results, claim) for claim in CLAIMS if {claim.before, claim.after} <= results.runs.keys()]
    yield from _table("claims of the source documents", ("claim", "there", "here", "ideal"), claims)
    sweep = [results.runs[scenario.id] for scenario in SWEEP if scenario.id in results.runs]
    check_equal_work(sweep)
    rows = [
        (str(run.scenario.max_concurrent), _seconds(run), str(run.requests), str(run.retried), str(run.peak_in_flight))
        for run in sweep
    ]
    yield from _table("1024 × 2 s, 429 above 80 at once", ("at once", "makespan", "requests", "retries", "peak"), rows)
    waits = [results.runs[source.id] for source in SOURCES if source.compute and source.id in results.runs]
    yield from _table(
        "GPU wait: 100 × 0.7 s judged while the caller computes for 80 s",
        ("mode", "blocked", "there"),
        [(r.scenario.mode, f"{r.waited:.1f} s", {"sync": "60 s"}.get(r.scenario.mode, "~0 s")) for r in waits],
    )
    for title, lines in results.notes.items():
        yield ""
        yield f"── {title}"
        yield from lines


_HEADINGS = ("mode", "makespan", "speed-up", "efficiency", "requests", "peak", "digest")


def _claim_row(results: Results, claim: Claim) -> tuple[str, ...]:
    slow, fast = results.runs[claim.before], results.runs[claim.after]
    check_equal_work([slow])
    check_equal_work([fast] if slow.scenario.distinct != fast.scenario.distinct else [slow, fast])
    ratio = (slow.seconds or 0.0) / (fast.seconds or 1.0)
    return claim.id, claim.there, f"{ratio:.1f}× ({slow.seconds:g} s → {fast.seconds:g} s)", f"{claim.ideal:.1f}×"


def _row(run: Run, baseline: Run | None) -> tuple[str, ...]:
    speed_up = f"{baseline.seconds / run.seconds:.1f}×" if baseline and baseline.seconds and run.seconds else "–"
    efficiency = f"{run.efficiency:.1%}" if run.efficiency else "–"
    peak = "–" if run.peak_in_flight is None else str(run.peak_in_flight)
    mode = f"self, batch {run.scenario.batch_size}" if run.scenario.mode == "self" else run.scenario.mode
    return mode, _seconds(run), speed_up, efficiency, str(run.requests), peak, run.digest[:8]


def _seconds(run: Run) -> str:
    return "–" if run.seconds is None else f"{run.seconds:.3f} s"


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    yield ""
    yield f"── {title}"
    for row in [headings, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "   ".join(cells).rstrip()

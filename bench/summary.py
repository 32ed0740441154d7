"""The end of a benchmark run, for people: modes side by side, the source documents' claims, and the client's costs.

What a session measures is checked as it comes, before anything is compared or recorded, and its records are written at
once: whatever happens later, nothing that was measured is lost. Rendering only shows what there is, and never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import records
from bench.records import Record
from bench.runner import Run, check_equal_work
from bench.scenarios import CLAIMED_WAITS, CLAIMS, GUARDS, SWEEP, WIRE, Claim

#: What each column of the tables says, a line each.
COLUMNS = {
    "mode": "how requests are driven; `sync`, one after another, is what speed-ups are over",
    "virtual s": "seconds from submit to the last verdict on a clock that jumps: exact, the same on every machine",
    "seconds": "the same on the real clock, the best of the rounds",
    "speed-up": "how many times shorter than `sync` with the same samples, which gave the same verdicts",
    "of the ideal": "the time of a scheduler that never idles and is never refused, over the time that it took",
    "requests": "those that reached the endpoint, as it counted them",
    "retries": "how many of them were asked again",
    "refused": "how many of them the endpoint answered with an error",
    "peak": "the most that the endpoint had in flight at once",
    "opened": "connections that were opened meanwhile, as the server counted them",
    "pause": "virtual seconds from a refusal until the same request came again, on average",
    "too soon": "retries that came before the time that Retry-After had asked for",
    "digest": "over every status, score and text: the same where the verdicts are",
    "figure": "what is counted where time shows nothing: prefixes, a stream's memory, a cache's faults, work of submit",
    "at once": "`max_concurrent`",
    "claim": "what the documents say that this project started from",
    "claimed": "their figure",
    "here": "the same, measured here: in virtual time, or counted",
    "ideal": "what a perfect scheduler would reach",
    "blocked": "virtual seconds that the caller waited for verdicts when its own work was done",
}


@dataclass
class Results:
    """What a session has measured so far; with `path`, its records are there as soon as they are known."""

    path: Path | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    legends: dict[str, str] = field(default_factory=dict)
    recorded: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.runs and not self.notes

    def add(self, run: Run) -> None:
        """Raises UnequalWork, and keeps nothing of it, where the run did not do what the others did."""
        others = [other for other in self.runs.values() if other.scenario.workload == run.scenario.workload]
        check_equal_work([*others[:1], run])
        self.runs[run.scenario.id] = run
        self.record(records.records_of(run))
        if not _is_not_baseline(run):
            beside = [other for other in self.groups().get(run.scenario.group, []) if other is not run]
            self.record(records.speed_up_of(other, run) for other in beside)
        elif (baseline := self.baseline(run)) is not None:
            self.record([records.speed_up_of(run, baseline)])

    def note(self, title: str, lines: list[str], figures: list[Record], legend: str = "") -> None:
        """A measurement that is no run of the grid: its own few lines, what they say, and its records."""
        self.notes.setdefault(title, []).extend(lines)
        self.legends[title] = legend
        self.record(figures)

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

    def record(self, figures: Iterable[Record | None]) -> None:
        """A disk that is full is told of at the end, and costs no measurement."""
        known = [figure for figure in figures if figure is not None]
        self.recorded += known
        if self.path is not None and known:
            try:
                records.write(known, self.path)
            except OSError as error:
                self.problems.append(
                    f"{len(known)} records were not written: {error}; name another file with --records"
                )


def _is_not_baseline(run: Run) -> bool:
    return run.scenario.batch_size != 1 if run.scenario.mode == "self" else run.scenario.mode != "sync"


def render(results: Results) -> Iterator[str]:
    shown: dict[str, None] = {}
    for title, headings, rows in _tables(results):
        if rows:
            shown |= dict.fromkeys(headings)
            yield from table(title, headings, rows)
    if shown:
        yield ""
        yield from (f"{name:>12}: {COLUMNS[name]}" for name in shown if name in COLUMNS)
    for title, lines in results.notes.items():
        yield ""
        yield f"── {title}"
        yield from lines
        if results.legends.get(title):
            yield f"   ({results.legends[title]})"
    for problem in results.problems:
        yield ""
        yield problem


Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def _tables(results: Results) -> Iterator[Table]:
    for group, runs in results.groups().items():
        where = {"respx": ", in virtual time", "loopback": ", over sockets to a simulated server"}
        seconds = "virtual s" if runs[0].scenario.is_virtual else "seconds"
        headings = ("mode", seconds, "speed-up", "of the ideal", "requests", "peak", "opened", "digest")
        title = group + where.get(runs[0].scenario.backend, "")
        yield title, headings, [_row(run, results.baseline(run)) for run in runs]
    wire = [results.runs[scenario.id] for scenario in WIRE if scenario.id in results.runs]
    rows = [
        (r.scenario.id, str(r.requests), _count(r.peak_in_flight), _count(r.connections), r.digest[:8]) for r in wire
    ]
    yield "what reaches the server, cold", ("scenario", "requests", "peak", "opened", "digest"), rows
    guards = [results.runs[scenario.id] for scenario in GUARDS if scenario.id in results.runs]
    headings = ("scenario", "virtual s", "of the ideal", "requests", "refused", "pause", "too soon", "peak", "digest")
    yield (
        "trouble, uneven latency, other calls and warm caches, in virtual time",
        headings,
        [_guard_row(r) for r in guards],
    )
    counted = [row for run in results.runs.values() for row in _counted_rows(run)]
    yield "what time does not show", ("scenario", "figure"), counted
    claims = [_claim_row(results, claim) for claim in CLAIMS if {claim.before, claim.after} <= results.runs.keys()]
    yield "claims of the source documents", ("claim", "claimed", "here", "ideal"), claims
    sweep = [results.runs[scenario.id] for scenario in SWEEP if scenario.id in results.runs]
    rows = [
        (str(r.scenario.max_concurrent), _seconds(r), str(r.requests), str(r.retried), _count(r.peak_in_flight))
        for r in sweep
    ]
    yield "1024 × 2 s, 429 above 80 at once", ("at once", "virtual s", "requests", "retries", "peak"), rows
    waits = [(results.runs[id], claimed) for id, claimed in CLAIMED_WAITS.items() if id in results.runs]
    rows = [(r.scenario.mode, f"{r.waited:.1f} s", f"{claimed:g} s" if claimed else "~0 s") for r, claimed in waits]
    yield "GPU wait: 100 × 0.7 s judged while the caller computes for 80 s", ("mode", "blocked", "claimed"), rows


def _claim_row(results: Results, claim: Claim) -> tuple[str, ...]:
    runs, is_timed = (results.runs[claim.before], results.runs[claim.after]), claim.metric == "makespan"
    slow, fast = ((run.seconds or 0.0) if is_timed else run.requests for run in runs)
    unit = "s" if is_timed else "calls"
    here = f"{slow / (fast or 1.0):.1f}× ({slow:g} {unit} → {fast:g} {unit})"
    return claim.id, f"{claim.claimed:g}×", here, f"{claim.ideal:.1f}×"


def _row(run: Run, baseline: Run | None) -> tuple[str, ...]:
    speed_up = f"{baseline.seconds / run.seconds:.1f}×" if baseline and baseline.seconds and run.seconds else "–"
    mode = f"self, batch {run.scenario.batch_size}" if run.scenario.mode == "self" else run.scenario.mode
    opened = _count(run.connections)
    return (
        mode,
        _seconds(run),
        speed_up,
        _share(run),
        str(run.requests),
        _count(run.peak_in_flight),
        opened,
        run.digest[:8],
    )


def _guard_row(run: Run) -> tuple[str, ...]:
    pause = "–" if run.pause is None else f"{run.pause:.3f}"
    too_soon = _count(run.too_soon) if run.refused else "–"
    counts = (str(run.requests), _count(run.refused), pause, too_soon, _count(run.peak_in_flight))
    return run.scenario.id, _seconds(run), _share(run), *counts, run.digest[:8]


def _counted_rows(run: Run) -> Iterator[tuple[str, str]]:
    id = run.scenario.id
    if run.prefix_share is not None and run.scenario.responses > 1:
        yield id, f"{run.prefix_share:.1%} of the bytes sent stood at the beginning of earlier requests"
    if run.left_behind is not None:
        yield (
            id,
            f"{run.left_behind} bytes a sample are left behind: the latest 4,096 latencies are kept on purpose",
        )
    if run.wrong_from_cache is not None:
        yield id, f"{run.wrong_from_cache} of {run.scenario.n} verdicts out of the cache are not what the endpoint said"
    if run.submit_bytecodes is not None and run.scenario.id == "async-1024":
        yield id, f"{run.submit_bytecodes:,} bytecodes of rewardcore run in the caller's thread while it submits"


def _seconds(run: Run) -> str:
    return "–" if run.seconds is None else f"{run.seconds:.3f}"


def _share(run: Run) -> str:
    return "–" if run.efficiency is None else f"{run.efficiency:.1%}"


def _count(value: int | None) -> str:
    return "–" if value is None else str(value)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"── {title}"
    yield from columns([headings, *rows])


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "   ".join(cells).rstrip()

"""What has changed: series over commits and nights, and what the gate says of two revisions."""

from __future__ import annotations

from collections import Counter

from bench.gate.findings import Finding
from bench.gate.history import WORTH
from bench.report import commands
from bench.report.page import Figure, Key, Panel, Section
from bench.report.plots import history as history_plots
from bench.report.plots import memory as memory_plots
from bench.report.sections.speed import modes
from bench.report.sources import Gate, Sources
from bench.report.table import Row, Table
from bench.report.tables import history

DIRTY = Key("hollow", "ink", "a dirty night")


def over_time(sources: Sources) -> Section:
    figures: list[Figure] = []
    missing: list[tuple[str, str]] = []
    notes: list[str] = []
    if sources.history.series:
        steps, why = history.change_points(sources.history)
        table, moved = history.over_commits(sources.history, steps), history.moved(sources.history, steps)
        notes += [why] if why else []
        count = len(sources.history.series)
        changed = len({step.series for step in steps})
        figures.append(
            Figure(
                "history-commits",
                f"{count} series over {len(sources.history.commits)} commits",
                "Each series that asv keeps, in per cent of its oldest value; exact figures, and higher is worse."
                f" {changed or 'None'} of them changed by {100 * WORTH:.0f} % or more, says asv's step detection.",
                [Panel(history_plots.over_commits(table, moved))],
                [("Change points", moved), ("Series that changed, and the others together", history.listed(table))],
                [
                    Key("line", "ink", "a series that changed"),
                    Key("triangle-up", "bad", "became worse"),
                    Key("triangle-down", "good", "became better"),
                    Key("line", "quiet", "series that did not"),
                ],
                layout="wide",
                is_open=bool(moved),
            )
        )
    else:
        missing.append(("There is no history over commits yet:", commands.HISTORY))
    nights = history.comparable(sources.nights)
    if speed_ups := history.speed_ups_by_night(nights):
        figures.append(
            Figure(
                "nights-speed-up",
                f"Speed-up by night, {speed_ups.rows[0]['n']:,} samples",
                f"At the server that each night starts: {nights[-1].setting}. A dirty night is never a baseline.",
                [Panel(history_plots.speed_ups_by_night(speed_ups))],
                [("Speed-up by night", speed_ups)],
                [*modes(speed_ups), DIRTY],
            )
        )
    if peaks := history.peaks_by_night(nights):
        kinds = memory_plots.kinds_of(peaks)
        figures.append(
            Figure(
                "nights-memory",
                f"Memory by night, batch size {peaks.rows[0]['batch_size']}",
                f"What a batch took at its fullest moment, and what was predicted: {nights[-1].setting}.",
                [Panel(history_plots.peaks_by_night(peaks))],
                [("Memory by night", peaks)],
                [*(Key("circle", name, kind) for kind, name in kinds.items()), DIRTY],
            )
        )
    if not nights:
        missing.append(("There are no nights yet:", commands.NIGHT))
    return Section("history", "History", "Which commit made it slower, or quicker.", figures, missing, notes=notes)


def verdicts(gate: Gate | None) -> Section:
    if gate is None:
        missing = [("The gate has not been asked yet:", commands.GATE)]
        return Section("gate", "The gate", missing=missing)
    about = f"Has judging become slower or hungrier? Head: {gate.head}; base: {gate.base}."
    tables = [("By tier", _by_tier(gate)), ("What has moved", _moved(gate))]
    notes = [f"history, advice only: {line}" for line in gate.advice]
    notes += [] if tables[1][1] else ["Nothing has moved."]
    shown = [(title, table) for title, table in tables if table]
    return Section("gate", "The gate", about, verdict=gate.verdict, tables=shown, notes=notes)


def _by_tier(gate: Gate) -> Table:
    rows: list[Row] = []
    for tier in gate.tiers:
        outcomes = Counter(finding["outcome"] for finding in gate.findings if finding["tier"] == tier)
        if tier != "history":
            rows.append({"tier": tier, **{name: outcomes[name] for name in ("pass", "fail", "inconclusive")}})
    return Table({"tier": "tier", "pass": "pass", "fail": "fail", "inconclusive": "inconclusive"}, rows)


def _moved(gate: Gate) -> Table:
    rows: list[Row] = []
    for each in gate.findings:
        finding = Finding(**{name: each[name] for name in Finding.__dataclass_fields__ if name in each})
        if finding.has_moved:
            rows.append({**each, "change": finding.change})
    rows.sort(key=lambda row: ("fail", "inconclusive", "pass").index(row["outcome"]))
    columns = ("outcome", "tier", "scenario", "metric", "base", "head", "unit", "change", "why")
    return Table({name: name for name in columns}, rows)

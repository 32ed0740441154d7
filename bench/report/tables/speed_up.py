"""How much faster than one request after another: by size and mode, beside the ideal and what the documents claim."""

from __future__ import annotations

from bench.records import Record
from bench.report.newest import SPEED_UP, Newest
from bench.report.table import Row, Table, short
from bench.scenarios import BACKEND_MODES, CLAIMS, MODES, REGISTRY, SELF, SIZES, Backend, Claim


def claims(newest: Newest) -> Table:
    """Each claim of the source documents that both of its scenarios have a figure for."""
    rows: list[Row] = []
    used: list[Record] = []
    for claim in CLAIMS:
        before, after = newest.get(claim.before, claim.metric), newest.get(claim.after, claim.metric)
        if before is None or after is None or not after.value:
            continue
        used += [before, after]
        unit = "calls" if claim.metric == "requests" else before.unit
        rows.append(
            {
                "claim": claim.id,
                "claimed": claim.claimed,
                "here": float(before.value) / float(after.value),
                "ideal": claim.ideal,
                "from": f"{float(before.value):g} → {float(after.value):g} {unit}",
            }
        )
    columns = {"claim": "setting", "claimed": "claimed, ×", "here": "here, ×", "ideal": "ideal, ×", "from": "from"}
    return Table(columns, rows, used)


def by_size(newest: Newest, backend: Backend) -> Table:
    """A row for each mode and size that has a figure; sync is 1 by definition."""
    rows: list[Row] = []
    used: list[Record] = []
    for mode in BACKEND_MODES[backend]:
        for n in SIZES:
            scenario, baseline = REGISTRY[f"{backend}/{mode}/{n}"], REGISTRY[f"{backend}/sync/{n}"]
            found = newest.get(scenario.id, "makespan" if mode == "sync" else SPEED_UP)
            if found is None or not scenario.is_timed:
                continue
            used.append(found)
            makespan = newest.get(scenario.id, "makespan")
            ideal = baseline.ideal / scenario.ideal if baseline.ideal and scenario.ideal else None
            rows.append(
                {
                    "mode": mode,
                    "n": n,
                    "speed_up": 1.0 if mode == "sync" else float(found.value),
                    "ideal": ideal,
                    "seconds": None if makespan is None else float(makespan.value),
                    "commit": short(found.commit),
                }
            )
    seconds = "virtual seconds" if backend == "respx" else "seconds"
    columns = {"mode": "mode", "n": "samples", "speed_up": "speed-up, ×", "ideal": "ideal, ×", "seconds": seconds}
    return Table({**columns, "commit": "commit"}, rows, used)


def at_endpoints(newest: Newest) -> dict[str, Table]:
    """A table for each endpoint that is not simulated: those that users named, and the server of a night."""
    found: dict[str, list[Record]] = {}
    for each in newest:
        if each.backend not in ("respx", "loopback") and each.metric == SPEED_UP:
            name = (
                f"{each.model} at {each.base_url}"
                if each.backend == "real"
                else f"a server of the nights ({each.backend})"
            )
            found.setdefault(name, []).append(each)
    columns = {"mode": "mode", "n": "samples", "speed_up": "speed-up, ×", "commit": "commit"}
    return {
        name: Table(
            columns,
            [
                {"mode": each.mode, "n": each.n, "speed_up": each.value, "ideal": None, "commit": short(each.commit)}
                for each in sorted(used, key=lambda each: (rank(each.mode), each.n))
            ],
            used,
        )
        for name, used in found.items()
    }


def by_batch_size(newest: Newest) -> Table:
    """The self mode: a row for each size and batch size; batch size 1 is 1 by definition."""
    rows: list[Row] = []
    used: list[Record] = []
    for n in SIZES:
        for scenario in (each for each in SELF if each.n == n):
            found = newest.get(scenario.id, "speed-up over batch size 1")
            if found is None:
                continue
            if not rows or rows[-1]["n"] != n:
                rows.append({"n": n, "batch_size": 1, "calls": n, "commit": short(found.commit), "speed_up": 1.0})
            used.append(found)
            row = {"n": n, "batch_size": scenario.batch_size, "calls": scenario.requests, "commit": short(found.commit)}
            rows.append({**row, "speed_up": float(found.value)})
    columns = {"n": "samples", "batch_size": "batch size", "speed_up": "speed-up, ×", "calls": "calls"}
    return Table({**columns, "commit": "commit"}, rows, used)


def rank(mode: str) -> int:
    """Modes stand in the registry's order, unknown ones last."""
    return list(MODES).index(mode) if mode in MODES else len(MODES)


def claimed_by_size() -> list[Row]:
    """Claims that are speed-ups over sync without a cache: they have a place in the plot by size."""
    return [
        {"n": REGISTRY[claim.after].n, "speed_up": claim.claimed, "claim": claim.id}
        for claim in CLAIMS
        if _is_speed_up(claim)
    ]


def _is_speed_up(claim: Claim) -> bool:
    before, after = REGISTRY[claim.before], REGISTRY[claim.after]
    return before.mode == "sync" and after.mode != "sync" and after.distinct is None

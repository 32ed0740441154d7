"""How many at once: sweeps with their knees, what "auto" finds as time goes on, and how near it comes everywhere."""

from __future__ import annotations

from itertools import accumulate, pairwise

from bench.profiles.drive import Played
from bench.profiles.endpoints import PROFILES, Profile
from bench.records import Record
from bench.report.computed import Sweep, pace_of, thinned
from bench.report.newest import Newest
from bench.report.table import Row, Table
from bench.sweep import ASKED_AGAIN, NAMED, SPEED


def sweep(found: Sweep) -> Table:
    columns = {"at_once": "at once", "pace": "samples a second", "refused": "refused, % of requests"}
    settings = [*found.fixed.items(), ("auto", found.auto)]
    rows = [
        {"at_once": setting, "pace": pace_of(played), "refused": 100 * played.refused_share}
        for setting, played in settings
    ]
    return Table(columns, rows)


def own_sweeps(newest: Newest) -> dict[str, Table]:
    """The newest that bench.sweep has measured of each endpoint and model: limits of two runs are no curve."""
    runs: dict[tuple[str, str], list[Record]] = {}
    for each in sorted(newest, key=lambda each: each.time, reverse=True):
        if each.scenario.startswith(NAMED):
            run = runs.setdefault((each.base_url, each.model), [])
            if not run or each.run == run[0].run:
                run.append(each)
    tables = {f"{base_url}, {model}": _own_sweep(run) for (base_url, model), run in runs.items()}
    return {name: table for name, table in tables.items() if len(fixed(table)) > 1}


def _own_sweep(run: list[Record]) -> Table:
    found = {(each.scenario.removeprefix(NAMED), each.metric): float(each.value) for each in run}
    limits = sorted(
        (limit for limit, metric in found if metric == SPEED), key=lambda limit: (limit == "auto", len(limit), limit)
    )
    rows: list[Row] = [
        {
            "at_once": limit if limit == "auto" else int(limit),
            "pace": found[limit, SPEED],
            "refused": 100 * found[limit, ASKED_AGAIN],
        }
        for limit in limits
    ]
    return Table({"at_once": "at once", "pace": SPEED, "refused": f"{ASKED_AGAIN}, % of requests"}, rows, run)


def fixed(table: Table) -> dict[int, float]:
    """Samples a second of each fixed limit."""
    return {row["at_once"]: row["pace"] for row in table.rows if row["at_once"] != "auto"}


def watched(profile: Profile, played: Played) -> Table:
    """What is in flight, what is allowed, and what the endpoint bears then."""
    endpoint = profile.open()
    rows: list[Row] = [
        {
            "time": round(moment.time, 3),
            "in_flight": moment.in_flight,
            "allowed": moment.window,
            "borne": endpoint.bears(moment.time),
        }
        for moment in thinned(played)
    ]
    return Table({"time": "virtual s", "in_flight": "in flight", "allowed": "allowed", "borne": "borne"}, rows)


def sparse(table: Table, most: int = 25) -> Table:
    """For a reader: so many of its rows, evenly, and the last one."""
    every = -(-len(table.rows) // most)
    rows = table.rows[::every]
    return Table(table.columns, rows if rows[-1] is table.rows[-1] else [*rows, table.rows[-1]], table.records)


def refusals(played: Played) -> list[Row]:
    """Where something was refused, once for all of an instant."""
    return [
        {"time": round(after.time, 3), "in_flight": after.in_flight, "refused": after.refused - before.refused}
        for before, after in pairwise(played.moments)
        if after.refused > before.refused
    ]


def ends(played: Played) -> list[Row]:
    """When each batch was judged."""
    return [{"time": round(time, 3)} for time in accumulate(played.makespans)]


def of_the_best(newest: Newest) -> Table:
    """Every endpoint that was played: auto over the best fixed setting."""
    rows: list[Row] = []
    used: list[Record] = []
    for profile in PROFILES.values():
        id = f"profile-{profile.name}"
        found = newest.get(id, "of the best fixed setting")
        if found is None:
            continue
        used.append(found)
        first, refused = newest.value(id, "of its first batch"), newest.value(id, "refused")
        rows.append(
            {
                "endpoint": profile.about,
                "name": profile.name,
                "best": profile.best,
                "share": 100 * float(found.value),
                "first": None if first is None else 100 * first,
                "refused": None if refused is None else 100 * refused,
            }
        )
    columns = {"name": "profile", "best": "best fixed", "share": "auto, %", "first": "first batch, %"}
    return Table({**columns, "refused": "refused, %"}, rows, used)

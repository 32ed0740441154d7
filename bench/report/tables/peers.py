"""Other clients on the same work: CPU a sample within one run, and what a new process pays before its first reward."""

from __future__ import annotations

from bench import client_cost, cold_start
from bench.peers import PEERS
from bench.records import Record
from bench.report.newest import Newest
from bench.report.table import Row, Table, short


def cpu(newest: Newest) -> Table:
    """How many times rewardcore's CPU each client takes; rewardcore itself is 1."""
    rows: list[Row] = []
    used: list[Record] = []
    ours = newest.get(client_cost.SCENARIO.id, "client CPU")
    for name in PEERS:
        found = newest.get(client_cost.SCENARIO.id, f"client CPU over {name}")
        if found is not None and found.value:
            used.append(found)
            rows.append({"client": name, "times": 1 / float(found.value), "is_ours": False, **_of(found)})
    if rows and ours is not None:
        used.append(ours)
        rows.append({"client": client_cost.OURS, "times": 1.0, "is_ours": True, **_of(ours)})
    rows.sort(key=lambda row: row["times"])
    columns = {"client": "client", "times": "CPU a sample, × rewardcore's", "rounds": "rounds", "commit": "commit"}
    return Table(columns, rows, used)


def start(newest: Newest) -> Table:
    rows: list[Row] = []
    used: list[Record] = []
    for client in (*cold_start.CLIENTS, *cold_start.PEERS):
        for order, stage in enumerate(cold_start.STAGES):
            found = newest.get(cold_start.SCENARIO.id, f"{client}: {stage}")
            if found is not None:
                used.append(found)
                seconds = float(found.value)
                is_ours = client in cold_start.CLIENTS
                rows.append({"client": client, "stage": stage, "order": order, "seconds": seconds, "is_ours": is_ours})
    return Table({"client": "client", "stage": "stage", "seconds": "CPU seconds"}, rows, used)


def _of(record: Record) -> Row:
    return {"rounds": record.samples, "commit": short(record.commit)}

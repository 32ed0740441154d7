"""Memory of the self mode by batch size: what is predicted on any machine beside what a device measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bench.figures import MEMORY
from bench.records import Record
from bench.report.newest import Newest
from bench.report.table import Row, Table

MIB = 2**20
#: Peaks with the weights in them, whoever says so; what a batch adds to them is another figure.
_METRIC = re.compile(r"(?P<kind>(predicted|CPU|CUDA) peak.*), batch (?P<size>\d+)")


def peaks(records: Iterable[Record]) -> Iterator[tuple[Record, str, int]]:
    """Each with its kind and its batch size."""
    for each in records:
        matched = _METRIC.fullmatch(each.metric)
        if matched and each.scenario == MEMORY.id and not isinstance(each.value, str):
            yield each, matched["kind"], int(matched["size"])


def by_batch_size(newest: Newest) -> Table:
    """A row for each kind and batch size, what is predicted first."""
    found = sorted(peaks(newest), key=lambda peak: (not _is_predicted(peak[1]), peak[1], peak[2]))
    rows: list[Row] = [
        {"kind": kind, "batch_size": size, "mebibytes": float(each.value) / MIB, "is_predicted": _is_predicted(kind)}
        for each, kind, size in found
    ]
    columns = {"kind": "kind", "batch_size": "batch size", "mebibytes": "MiB"}
    return Table(columns, rows, [each for each, *_ in found])


def side_by_side(table: Table) -> Table:
    """For a reader: a row for each batch size, a column for each kind."""
    sizes = sorted({row["batch_size"] for row in table.rows})
    kinds = dict.fromkeys(row["kind"] for row in table.rows)
    known = {(row["batch_size"], row["kind"]): row["mebibytes"] for row in table.rows}
    rows = [{"batch_size": size, **{kind: known.get((size, kind)) for kind in kinds}} for size in sizes]
    return Table({"batch_size": "batch size", **{kind: f"{kind}, MiB" for kind in kinds}}, rows, table.records)


def line(newest: Newest) -> str:
    """The predicted curve in words, if it was recorded."""
    intercept = newest.value(MEMORY.id, "predicted peak, intercept")
    slope = newest.value(MEMORY.id, "predicted peak, slope")
    if intercept is None or slope is None:
        return ""
    return f"{intercept / MIB:,.2f} MiB and {slope / MIB:,.2f} MiB more for each sample"


def _is_predicted(kind: str) -> bool:
    return kind.startswith("predicted")

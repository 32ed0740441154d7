"""The newest value of each metric, whichever file, run or night it comes from; every table of the page asks here.

A record of a later version of its scenario goes before one of an earlier version, whenever that was taken: they do not
measure the same. A night that was not clean gives no values, and a text, such as a digest, is none. Each value stays a
record, and so can say of which commit it is, and when it was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from bench.records import Record
from bench.report.sources import Night

SPEED_UP = "speed-up over sync"


class Newest:
    def __init__(self, records: Iterable[Record] = (), nights: Iterable[Night] = ()) -> None:
        self._found: dict[tuple[str, ...], Record] = {}
        self.add(chain(records, *(night.records for night in nights if night.is_clean)))

    def add(self, records: Iterable[Record]) -> None:
        """Of two that are equally new, the one that is added later."""
        for each in records:
            if isinstance(each.value, str):
                continue
            # A user's endpoints are several; a server that the harness started is one, whatever its port.
            key = (each.scenario, each.metric, *((each.base_url, each.model) if each.backend == "real" else ()))
            known = self._found.get(key)
            if known is None or (each.version, each.time) >= (known.version, known.time):
                self._found[key] = each

    def __iter__(self) -> Iterator[Record]:
        return iter(self._found.values())

    def get(self, scenario: str, metric: str) -> Record | None:
        """Of whichever endpoint and model, if it has them, the newest."""
        found = [each for each in self if (each.scenario, each.metric) == (scenario, metric)]
        return max(found, key=lambda each: (each.version, each.time), default=None)

    def value(self, scenario: str, metric: str) -> float | None:
        found = self.get(scenario, metric)
        return None if found is None else float(found.value)

"""What is due when: a heap whose entries may lose their meaning, at a cost that follows the work, not the size."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
#: Below this many, dead entries are not worth a cleaning.
_FEW = 64


class Timetable(Generic[T]):
    """An entry is dead once `is_live` says so; whoever lets one die says `lost()`, so that half at most are dead."""

    def __init__(self, is_live: Callable[[T], object]) -> None:
        self._is_live = is_live
        self._entries: list[tuple[float, int, T]] = []
        self._ordinal = itertools.count()
        self._dead = 0

    def add(self, when: float, item: T) -> None:
        heapq.heappush(self._entries, (when, next(self._ordinal), item))

    def lost(self) -> None:
        self._dead += 1
        self._clean()

    def next(self) -> float:
        """When the first live entry is due; never is infinity."""
        entries = self._entries
        while entries and not self._is_live(entries[0][2]):
            heapq.heappop(entries)
            self._dead -= 1
        return entries[0][0] if entries else math.inf

    def pop(self) -> T:
        """The entry that `next` told of."""
        item = heapq.heappop(self._entries)[2]
        self._clean()
        return item

    def _clean(self) -> None:
        if self._dead > _FEW and 2 * self._dead > len(self._entries):
            self._entries = [entry for entry in self._entries if self._is_live(entry[2])]
            heapq.heapify(self._entries)
            self._dead = 0

    def clear(self) -> None:
        self._entries.clear()
        self._dead = 0

"""What a real generator allocates on the CPU while it judges a batch, counted byte by byte: exact, and without a GPU.

The prediction runs the model as it thinks that `generate` does; this counts what is really done, so that a cache that
is kept, or kept twice, shows. Brings torch.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Counted(NamedTuple):
    """Bytes beyond what was there before: the most at once, and what is still there afterwards."""

    peak: int
    left: int


class Ledger(TorchDispatchMode):
    """Every storage that an operator brings is entered once, and struck out when it is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.most = 0
        self._entered: set[int] = set()

    def enter(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if place not in self._entered:
            self._entered.add(place)
            self.total += size
            self.most = max(self.most, self.total)
            weakref.finalize(storage, self._strike, place, size)

    def _strike(self, place: int, size: int) -> None:
        self._entered.discard(place)
        self.total -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.enter(leaf)
        return result


def count(model: torch.nn.Module, work: Callable[[], object]) -> Counted:
    """`work` is what the generator does with one batch; the model's own weights are no part of it."""
    ledger = Ledger()
    for weight in (*model.parameters(), *model.buffers()):
        ledger.enter(weight)
    before = ledger.total
    with ledger:
        work()
    gc.collect()
    return Counted(ledger.most - before, ledger.total - before)

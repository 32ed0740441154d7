"""The devices of `fake_cuda`: what each holds, in an allocator that keeps what is freed, as torch's does; and which one
is current in each thread. No tensor is made here.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

MIB, GIB = 2**20, 2**30
BLOCK, SEGMENT = 512, 2 * MIB  # what torch's allocator rounds a tensor up to, and what it asks the driver for

#: Running out of memory, under the names that torch 2.13 has for it.
OUT_OF_MEMORY: dict[str, Callable[[], Exception]] = {
    "OutOfMemoryError": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    "AcceleratorError": lambda: torch.AcceleratorError(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call"
    ),
    "cuBLAS": lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
}


class Gpu:
    """One device; all figures are bytes. `others` is what other processes hold there."""

    def __init__(self, index: int, total: int) -> None:
        self.index, self.total, self.others = index, total, 0
        self.allocated = self.peak_allocated = self.reserved = self.peak_reserved = 0
        self.generator = torch.Generator()
        self._refusals: list[tuple[int, Callable[[], Exception]]] = []
        self._known: set[int] = set()
        self._lock = threading.RLock()  # a finalizer may run in the middle of an allocation

    def refuse(self, above: int = 0, times: int = 1, name: str = "OutOfMemoryError") -> None:
        """The next `times` allocations of more than `above` bytes fail, under one of the names in OUT_OF_MEMORY."""
        self._refusals += [(above, OUT_OF_MEMORY[name])] * times

    def hold(self, tensor: torch.Tensor) -> None:
        """Count the tensor's storage once, as long as it lives."""
        storage = tensor.untyped_storage()
        with self._lock:
            if storage._cdata in self._known:
                return
            size = _rounded(storage.nbytes(), BLOCK)
            self._take(size)
            self._known.add(storage._cdata)
        weakref.finalize(storage, self._give_back, storage._cdata, size)

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.index)

    @property
    def free(self) -> int:
        return self.total - self.others - self.reserved

    def empty_cache(self) -> None:
        self.reserved = _rounded(self.allocated, SEGMENT)

    def reset_peaks(self) -> None:
        self.peak_allocated, self.peak_reserved = self.allocated, self.reserved

    def _take(self, size: int) -> None:
        for place, (above, error) in enumerate(self._refusals):
            if size > above:
                del self._refusals[place]
                raise error()
        needed = self.allocated + size
        if needed - self.reserved > self.free:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / MIB:.2f} MiB. GPU {self.index} has a total capacity of"
                f" {self.total / GIB:.2f} GiB of which {self.free / MIB:.2f} MiB is free."
            )
        self.allocated, self.reserved = needed, max(self.reserved, min(_rounded(needed, SEGMENT), self.total))
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _give_back(self, identity: int, size: int) -> None:
        with self._lock:
            self._known.discard(identity)
            self.allocated -= size


class Cuda:
    """What a test sees of it: the devices, and what was done to all of them."""

    def __init__(self, devices: int, total: int) -> None:
        self.devices = [Gpu(index, total) for index in range(devices)]
        self.synchronisations = 0
        self.seeded_all = 0
        self._thread = threading.local()

    @property
    def current(self) -> int:
        return getattr(self._thread, "current", 0)

    def set_device(self, device: Any) -> None:
        self._thread.current = self.at(device).index

    def exchange(self, index: int) -> int:
        """Make this one current and return the one before, which is how torch.cuda.device works; -1 is none."""
        before = self.current
        if index >= 0:
            self._thread.current = self.devices[index].index
        return before

    def at(self, device: Any = None) -> Gpu:
        index = device if isinstance(device, int) else torch.device(device or "cuda").index
        if (index := self.current if index in (None, -1) else index) >= len(self.devices):
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        return self.devices[index]

    def synchronize(self, device: Any = None) -> None:
        self.synchronisations += 1

    def manual_seed_all(self, seed: int) -> None:
        self.seeded_all += 1
        for gpu in self.devices:
            gpu.generator.manual_seed(seed)

    def resolved(self, device: Any) -> Any:
        """The device with its index, where it is one of CUDA's and says none."""
        if device == "cuda" or (isinstance(device, torch.device) and device == torch.device("cuda")):
            return torch.device("cuda", self.current)
        return device


def _rounded(size: int, to: int) -> int:
    return -(-size // to) * to

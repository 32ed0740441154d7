"""A CUDA device on a CPU build of torch: real code runs over it, on tensors that are where they say they are.

A tensor "on cuda:1" wraps one on the CPU, which does the arithmetic. Its storage counts for that device while it lives,
in an allocator that holds on to what is freed, as torch's does. Tensors of two devices in one operator raise what a GPU
raises; so does an allocation that does not fit, or one that `refuse` was told of. The current device is per thread.

Not emulated: backward passes, streams, events and graphs; what a kernel takes for its own work and gives back, CUDA's
context and fragmentation; the order of asynchronous errors; speed. A process that is started from here sees no GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from tests.cuda.devices import GIB, Cuda, Gpu


class Generator(torch.Generator):
    """On the CPU, and says that it is on a GPU; its draws are not a GPU's."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made: Generator = super().__new__(cls, "cpu")
        made._device = _active.resolved(torch.device(device)) if _active else torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None: ...

    @property
    def device(self) -> torch.device:
        return self._device


class OnGpu(torch.Tensor):
    """A tensor on a faked device; `inner` is the one that computes."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> OnGpu:
        _cuda().at(device).hold(inner)
        made: OnGpu = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), inner.stride(), inner.storage_offset(), dtype=inner.dtype, device=device
        )
        made.inner = inner
        return made

    def __init__(self, inner: torch.Tensor, device: torch.device) -> None: ...

    def __repr__(self, **_: Any) -> str:
        return f"{self.inner!r} on {self.device}"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _RECORDED and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in args[:2]):
            raise NotImplementedError("a faked GPU has no backward pass; compute under torch.no_grad()")
        if (own := kwargs.get("generator")) is not None and own.device != args[0].device:
            raise RuntimeError(f"Expected a {args[0].device} generator but found {own.device}")
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            if func is torch.Tensor.tolist:  # refused by torch where a tensor is of a class of its own
                return args[0].cpu().tolist()
            if func is torch.nn.functional.scaled_dot_product_attention:  # one kernel on a GPU, not ten operators
                return cls._computed(func, args, kwargs, _one_device(args, kwargs))
            try:
                return func(*args, **kwargs)
            except RuntimeError as error:
                if "not linked with support for cuda" not in str(error):
                    raise
            # A few methods (indexing, ~, contiguous) ask for a driver's device guard before they ask us.
            return cls._computed(func, args, kwargs, args[0].device)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            return func.decompose(*args, **kwargs)  # in inference mode they come whole
        ops = torch.ops.aten
        target = kwargs.get("device")
        moves = func in (ops.copy_.default, ops._to_copy.default)
        device = next(leaf.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, OnGpu))
        if not moves:
            _one_device(args, kwargs)
        to_cpu = func is ops.copy_.default and not isinstance(args[0], OnGpu)
        if to_cpu or func in _WAITS or (target is not None and target.type == "cpu"):
            _cuda().synchronize()
        if target is not None:
            device, kwargs["device"] = _cuda().resolved(target), torch.device("cpu")
        if any(argument.name == "generator" for argument in func._schema.arguments):
            kwargs["generator"] = kwargs.get("generator") or _cuda().at(device).generator
        if to_cpu:
            return func(args[0], args[1].inner)
        made = cls._computed(func, args, kwargs, device)
        return made if device.type == "cpu" else return_and_correct_aliasing(func, args, kwargs, made)

    @classmethod
    def _computed(cls, func: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
        out = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        if device.type == "cpu":
            return out
        return tree_map(lambda leaf: OnGpu(leaf, device) if isinstance(leaf, torch.Tensor) else leaf, out)


_WAITS = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
}
#: With one of these a model begins. Autograd would ask for a driver's device guard, and end the process without one.
_RECORDED = {torch.nn.functional.linear, torch.nn.functional.embedding}
_active: Cuda | None = None


@contextmanager
def fake_cuda(devices: int = 1, total: int = 8 * GIB) -> Iterator[Cuda]:
    """Inside, torch has so many GPUs of so many bytes, in every thread of this process."""
    global _active
    _device_constructors()  # remembered for good: it must hold torch's own functions, not those below
    _active = cuda = Cuda(devices, total)
    library = torch.library.Library("aten", "IMPL")
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    functions = _functions(cuda)
    imported = {name: each for name, each in functions.items() if hasattr(torch.cuda.random, name)}
    with (
        patch.multiple(torch.cuda, **functions),
        patch.multiple(torch.cuda.random, **imported),
        patch.object(torch.version, "cuda", "12.8"),
        _devices_resolved(cuda),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Warning only once for all operators", category=UserWarning)
        for name in ("empty.memory_format", "empty_strided"):  # where every tensor begins
            library.impl(name, _factory(cuda, getattr(torch, name.split(".")[0])), "CUDA")
        torch.__future__.set_overwrite_module_params_on_conversion(True)  # a wrapper cannot take another's data
        try:
            yield cuda
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(before)
            library._destroy()
            _active = None


def _functions(cuda: Cuda) -> dict[str, Any]:
    """torch.cuda's own functions, by name."""

    def of(figure: Callable[[Gpu], Any]) -> Callable[..., Any]:
        return lambda device=None: figure(cuda.at(device))

    properties = dict(name="Fake GPU", major=8, minor=6, multi_processor_count=84, uuid="GPU-fake")
    return dict(
        is_available=lambda: True,
        is_initialized=lambda: True,
        is_bf16_supported=lambda *_: True,
        device_count=lambda: len(cuda.devices),
        current_device=lambda: cuda.current,
        set_device=cuda.set_device,
        _exchange_device=cuda.exchange,
        _maybe_exchange_device=cuda.exchange,
        _lazy_init=lambda: None,
        _lazy_call=lambda call, **_: call(),
        synchronize=cuda.synchronize,
        empty_cache=lambda: [gpu.empty_cache() for gpu in cuda.devices] and None,
        mem_get_info=of(lambda gpu: (gpu.free, gpu.total)),
        memory_allocated=of(lambda gpu: gpu.allocated),
        memory_reserved=of(lambda gpu: gpu.reserved),
        max_memory_allocated=of(lambda gpu: gpu.peak_allocated),
        max_memory_reserved=of(lambda gpu: gpu.peak_reserved),
        reset_peak_memory_stats=of(Gpu.reset_peaks),
        get_device_properties=of(lambda gpu: SimpleNamespace(total_memory=gpu.total, **properties)),
        get_device_name=of(lambda gpu: properties["name"]),
        get_device_capability=of(lambda gpu: (8, 6)),
        manual_seed_all=cuda.manual_seed_all,
        default_generators=tuple(gpu.generator for gpu in cuda.devices),
        is_current_stream_capturing=lambda: False,
    )


@contextmanager
def _devices_resolved(cuda: Cuda) -> Iterator[None]:
    """A device "cuda" gets its index before torch's own code asks a driver for it."""
    to = torch.Tensor.to

    def resolved(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return to(tensor, *map(cuda.resolved, args), **{name: cuda.resolved(each) for name, each in kwargs.items()})

    def made_first(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def moved(data: Any, *, device: Any = None, **kwargs: Any) -> torch.Tensor:
            made = function(data, **kwargs)
            return made if device is None else made.to(device)

        return moved

    with (
        patch.object(torch.Tensor, "to", resolved),
        patch.object(torch.Tensor, "cuda", lambda tensor, device="cuda": tensor.to(cuda.at(device).device)),
        patch.multiple(torch, tensor=made_first(torch.tensor), as_tensor=made_first(torch.as_tensor)),
        patch.object(torch, "Generator", Generator),
    ):
        yield


def _factory(cuda: Cuda, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def made(*args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> torch.Tensor:
        return OnGpu(function(*args, **kwargs, device="cpu"), cuda.at(device).device)

    return made


def _cuda() -> Cuda:
    if _active is None:
        raise RuntimeError("this tensor was on a faked GPU, which is gone")
    return _active


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, OnGpu) else value


def _one_device(args: Any, kwargs: Any) -> torch.device:
    """The device of all tensors; a number on the CPU may be among them, as on a GPU."""
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    found = sorted({str(leaf.device) for leaf in leaves if leaf.dim() or isinstance(leaf, OnGpu)})
    if len(found) > 1:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(found)}!"
        )
    return torch.device(found[0])

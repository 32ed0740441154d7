"""Unused memory goes back to the machine; and how running out of it is told. Light: it imports no torch."""

import gc
import sys

#: CUDA, cuBLAS and cuDNN, a CPU.
_OUT_OF_MEMORY = ("out of memory", "_STATUS_ALLOC_FAILED", "can't allocate memory")


def release_memory() -> None:
    """Collect what nobody uses, then `empty_cache`."""
    gc.collect()
    empty_cache()


def empty_cache() -> None:
    """Give the GPU what torch holds there without using it; torch is asked only where it is already loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_out_of_memory(error: Exception) -> bool:
    """Known by class name, also as Ray wraps it, so torch need not be loaded to ask; or by the words of a RuntimeError,
    such as torch.AcceleratorError."""
    if any(kind.__name__ in ("OutOfMemoryError", "MemoryError") for kind in type(error).__mro__):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)

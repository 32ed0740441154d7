"""Running out of memory, and giving back what is unused. Light: it imports no torch."""

import gc
import re
import sys

_NAMES = ("OutOfMemoryError", "MemoryError")
#: What CUDA and its libraries call it, in an AcceleratorError or in a plain RuntimeError.
_WORDS = re.compile(r"CUDA error: out of memory|CUDA out of memory|\w+_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation")


def is_out_of_memory(error: BaseException) -> bool:
    """By the names of its classes, also as Ray wraps it, or by CUDA's own words."""
    return any(kind.__name__ in _NAMES for kind in type(error).__mro__) or bool(_WORDS.search(str(error)))


def release_memory() -> None:
    """Give unused memory back to the machine; torch is asked only where it is already loaded."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()

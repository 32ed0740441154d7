"""Unused memory goes back to the machine. Light: it imports no torch."""

import gc
import sys


def release_memory() -> None:
    """Collect what nobody uses, then `empty_cache`."""
    gc.collect()
    empty_cache()


def empty_cache() -> None:
    """Give the GPU what torch holds there without using it; torch is asked only where it is already loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()

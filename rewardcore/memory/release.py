"""Unused memory goes back to the machine. Light: it imports no torch."""

import gc
import sys


def release_memory() -> None:
    """Give unused memory back to the machine; torch is asked only where it is already loaded."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()

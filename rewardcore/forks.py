"""No fork while something is half done: it would leave the child half of it, for ever. And what is done at each fork.

An import is such a thing: a module that another thread is just importing stays locked in the child. So whatever comes
with a mode is imported with `no_fork` held, and so is the loop begun.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


def at_fork(**hooks: Callable[[], object]) -> None:
    """`before`, `after_in_parent`, `after_in_child`. Before a fork, who registers last comes first: so a module that
    holds locks first imports whatever is called while one is held, such as executors."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**hooks)


no_fork = threading.RLock()
at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)

"""No fork while something is half done: it would leave the child half of it, for ever.

An import is such a thing: a module that another thread is just importing stays locked in the child. So whatever comes
with a mode is imported with `no_fork` held, and so is the loop begun.
"""

from __future__ import annotations

import os
import threading

no_fork = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=no_fork.release)

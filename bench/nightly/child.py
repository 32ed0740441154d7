"""A part's own process: `python -m bench.nightly.child ORDER`; it tells what it measures in lines of JSON.

What packages print goes to stderr, so that a line on stdout is always ours, and no process that is started here holds
the pipe open. SIGTERM is an exception, and so is the end of stdin, which is the parent's: servers and engines are put
away, whoever ends.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any

from bench.nightly.parts import GRACE, Order
from rewardcore.serving.signals import terminating_on_sigterm

MODULES = {"probe": "budget", "control": "control", "http": "served", "torch": "batches", "vllm": "offline"}


def main(text: str) -> int:
    answers = os.fdopen(os.dup(1), "w")  # which no child inherits
    os.dup2(2, 1)

    def hear(message: dict[str, Any]) -> None:
        print(json.dumps(message, allow_nan=False), file=answers, flush=True)

    order = Order.read(text)
    logging.getLogger("rewardcore").setLevel(logging.ERROR)  # a warning is told by what is measured
    if order.device == "cpu":
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # A forked engine would inherit what this process has open, and keep the parent waiting for the end of `answers`.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    try:
        with terminating_on_sigterm():
            end_with_parent()
            importlib.import_module(f"bench.nightly.{MODULES[order.part]}").measure(order, hear)
    except Exception as error:
        traceback.print_exc()
        said = (str(error).splitlines() or [""])[0]
        hear({"why": f"{type(error).__name__}: {said}"})
        return 1
    hear({"done": order.part})
    return 0


def end_with_parent() -> None:
    def wait() -> None:
        # Not sys.stdin.read(), which holds a lock meanwhile: a process that is forked here would wait for it for ever,
        # since multiprocessing closes stdin first.
        while os.read(0, 4096):
            pass
        signal.pthread_kill(main_thread, signal.SIGTERM)
        time.sleep(GRACE)
        os.killpg(0, signal.SIGKILL)

    main_thread = threading.get_ident()
    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

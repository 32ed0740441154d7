"""A part's process in place of a real one: `python -m tests.bench.nightly_child ORDER`; `model` says how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict

from bench.nightly.child import end_with_parent
from bench.nightly.parts import Order
from rewardcore.serving.signals import terminating_on_sigterm
from tests.bench.nights import made_up

ORDER = Order.read(sys.argv[1])


def tell(message: dict) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    first = next(each for each in made_up() if each.scenario in ORDER.scenarios)
    tell({"records": [asdict(first)]})
    if ORDER.model == "dies":
        print("CUDA error: device-side assert triggered", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if ORDER.model == "raises":
        print("Traceback", "RuntimeError: boom", sep="\n", file=sys.stderr, flush=True)
        tell({"why": "RuntimeError: boom"})
        sys.exit(1)
    if ORDER.model == "hangs":
        server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        try:
            tell({"tell": f"the server is {server.pid}"})
            threading.Event().wait()
        finally:  # as VllmServer does
            server.kill()
            server.wait()
    tell({"records": [asdict(each) for each in made_up() if each.scenario in ORDER.scenarios]})
    tell({"done": ORDER.part})


with terminating_on_sigterm():
    end_with_parent()
    main()

"""Scenarios of the registry by name: `python -m bench ID …` runs them and prints their records, a JSON line each.

For programs that measure another copy of rewardcore than their own. Nothing is compared here, so that work that is not
as it should be is told too. People have `tox -e bench`, with its tables.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict

from bench.records import records_of
from bench.runner import run, stage_for
from bench.scenarios import REGISTRY

BACKENDS = ("respx", "loopback", "torch")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Runs scenarios and prints their records.")
    parser.add_argument("ids", metavar="ID", nargs="+", help="as bench/scenarios.py names them, such as wire-asyncio")
    ids = parser.parse_args(arguments).ids
    for id in ids:
        if id not in REGISTRY or REGISTRY[id].backend not in BACKENDS:
            known = ", ".join(name for name, scenario in REGISTRY.items() if scenario.backend in BACKENDS)
            parser.error(f"there is no scenario {id!r} to run; there are {known}")
    logging.getLogger("rewardcore").setLevel(logging.ERROR)  # refusals are meant here
    for id in ids:
        with stage_for(REGISTRY[id]) as stage:
            for record in records_of(run(REGISTRY[id], stage)):
                print(json.dumps(asdict(record), sort_keys=True), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

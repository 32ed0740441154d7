"""`python -m tests.simulation --seeds N`: play histories; `--defects`: show which defects they find.

A failing seed prints its history; `--first SEED --seeds 1` plays that one again, exactly. Exit code 1 for a failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.simulation.defects import DEFECTS
from tests.simulation.history import play


def failures(
    seeds: range, tell: Callable[[str], object] = lambda line: None, most: int = sys.maxsize
) -> dict[int, BaseException]:
    """What went wrong, by seed; no more are played after so many."""
    found: dict[int, BaseException] = {}
    told = time.monotonic()
    for seed in seeds:
        try:
            play(seed)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            found[seed] = error
            if len(found) >= most:
                break
        if time.monotonic() - told > 2.0:
            told = time.monotonic()
            tell(f"{seed - seeds.start + 1} of {len(seeds)} histories, {len(found)} failed")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, metavar="N", help="how many histories (default 2000)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default 0)")
    parser.add_argument("--show", action="store_true", help="print every history")
    parser.add_argument("--defects", action="store_true", help="put known defects back, and see which are found")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error(f"--seeds must be 1 or more, not {options.seeds}")
    seeds = range(options.first, options.first + options.seeds)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if options.defects:
        missed = 0
        for name, put_back in DEFECTS.items():
            with put_back():
                found = failures(seeds, tell)
            missed += not found
            first = f", first by seed {min(found)}" if found else ""
            print(f"{name}: found by {len(found)} of {len(seeds)}{first}", flush=True)
        return 1 if missed else 0
    if options.show:
        for seed in seeds:
            print(play(seed), end="\n\n")
        return 0
    found = failures(seeds, tell)
    for seed, error in list(found.items())[:3]:
        print("\n".join(getattr(error, "__notes__", [repr(error)])))
        print(f"again: tox -e simulate -- --first {seed} --seeds 1\n")
    print(f"{len(seeds) - len(found)} passed, {len(found)} failed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

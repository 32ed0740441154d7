"""`python -m bench.profiles`: all profiles and failures by chance as tables, exact on any machine; plots on request."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
from functools import partial
from pathlib import Path

from bench.profiles import chance, report
from bench.profiles.drive import SEED, new_pace
from bench.profiles.endpoints import PROFILES
from bench.profiles.plot import draw


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.profiles",
        description="Judge five batches of 1024 at endpoints of every temper, in virtual time; 1 if a gate is missed.",
    )
    parser.add_argument("--profile", action="append", metavar="NAME", help=f"only this one: {', '.join(PROFILES)}")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write a PNG of each auto run (extra: report)")
    parser.add_argument("--sweep", action="store_true", help="play every fixed setting to find the best one")
    parser.add_argument("--seed", type=int, default=SEED, help="other draws and other jitter (%(default)s)")
    parser.add_argument("--chance", action="store_true", help="only failures by chance, beside a plain loop")
    options = parser.parse_args(arguments)
    if options.chance and (options.profile or options.plot or options.sweep):
        parser.error("--chance plays no profile: leave out --profile, --plot and --sweep")
    for name in options.profile or ():
        if name not in PROFILES:
            parser.error(f"there is no profile {name!r}: --profile takes {', '.join(PROFILES)}")
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install rewardcore[report]")
    lines, misses = list[str](), list[str]()
    if not options.chance:
        lines.append(report.HEADINGS)
    for name in () if options.chance else options.profile or PROFILES:
        print(f"{name} …", file=sys.stderr, flush=True)
        seeded = partial(new_pace, seed=options.seed)
        figures = report.measure(PROFILES[name].seeded(options.seed), is_swept=options.sweep, new_pace=seeded)
        lines.append(report.line(figures))
        misses += figures.misses()
        if options.plot is not None:
            try:
                draw(PROFILES[name], figures.auto, options.plot / f"{name}.png")
            except OSError as error:
                print(f"bench.profiles: --plot: {error}", file=sys.stderr)
                return 2
    if not options.profile:
        print("failures by chance …", file=sys.stderr, flush=True)
        found = {case: chance.measure(case) for case in chance.CASES}
        lines += ["", chance.TITLE, *chance.lines(found)] if lines else [chance.TITLE, *chance.lines(found)]
        misses += (miss for case, chanced in found.items() for miss in chance.misses(case, chanced))
    print("\n".join(lines))
    for miss in misses:
        print(f"missed: {miss}")
    return 1 if misses else 0


if __name__ == "__main__":
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)  # refusals are what these are made of
    sys.exit(main())

"""Has judging become slower or hungrier? `python -m bench.gate --base REV --head REV`; progress is on stderr.

Exit codes: 0 pass, 1 fail, 2 inconclusive, which is also what a revision that cannot be measured is.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.gate import exact, history, instructions, paired, revisions
from bench.gate.findings import EXIT_CODES, Finding
from bench.gate.report import Report
from bench.gate.revisions import CannotMeasure

TIERS = ("exact", "instructions", "paired", "history")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        report = run(options)
        for line in report.terminal(options.all):
            print(line)
        for path, text in ((options.json, report.json), (options.markdown, report.markdown)):
            if path is not None:
                path.write_text(text(), encoding="utf-8")
    except (CannotMeasure, OSError) as error:
        print(f"bench.gate: {error}", file=sys.stderr)
        return EXIT_CODES["inconclusive"]
    except KeyboardInterrupt as signalled:
        print("bench.gate: broken off, nothing is decided", file=sys.stderr)
        return 143 if signalled.args else 130
    return EXIT_CODES[report.verdict]


def _terminated(*_: object) -> None:
    """As Ctrl-C: the children have a session of their own, and end only if somebody ends them."""
    raise KeyboardInterrupt("SIGTERM")


def run(options: argparse.Namespace) -> Report:
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    base, head = revisions.resolve(options.base), revisions.resolve(options.head)
    if base.commit is not None and base.commit == head.commit:
        tell("base and head are the same commit: this compares a revision with itself")
    if head.commit is not None and options.head not in revisions.WORKTREE and revisions.has_changes():
        tell("the working tree has changes that are not measured; --head . measures them")
    findings: list[Finding] = []
    with ExitStack() as stack:
        tell(f"building {base.label} and {head.label}")
        pythons = [stack.enter_context(revisions.installed(revision)) for revision in (base, head)]
        if "exact" in options.tiers:
            findings += exact.gate(*pythons, tell, revisions.explained(base, head), options.without, options.only)
        if "instructions" in options.tiers:
            findings += instructions.gate(*pythons, tell, options.only)
        if "paired" in options.tiers:
            findings += paired.gate(*pythons, tell, options.pairs, options.only)
    advice = history.advise() if "history" in options.tiers else []
    return Report(base.label, head.label, options.tiers, findings, advice)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--base", required=True, metavar="REV", help="what is taken for good, such as main")
    parser.add_argument(
        "--head", default=".", metavar="REV", help="what is asked about; . is the working tree (default)"
    )
    parser.add_argument(
        "--tiers", type=_tiers, default=TIERS, metavar="A,B", help=f"of {', '.join(TIERS)} (default: all of them)"
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=["torch"],
        help="leave out what needs it: the self mode, memory",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="ID",
        help="this scenario alone; may be given often",
    )
    parser.add_argument("--pairs", type=_pairs, default=paired.PAIRS, help="of the paired tier (%(default)s)")
    parser.add_argument("--all", action="store_true", help="show every metric, not only those that have moved")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every finding, for programs")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="what has moved, for a pull request")
    return parser.parse_args(arguments)


def _tiers(text: str) -> tuple[str, ...]:
    chosen = [tier.strip() for tier in text.split(",") if tier.strip()]
    if not chosen or set(chosen) - set(TIERS):
        raise argparse.ArgumentTypeError(f"{text!r}: name some of {', '.join(TIERS)}, with commas between")
    return tuple(tier for tier in TIERS if tier in chosen)


def _pairs(text: str) -> int:
    if not text.isdecimal() or int(text) < 5:
        raise argparse.ArgumentTypeError(f"{text!r}: fewer than 5 pairs say nothing")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())

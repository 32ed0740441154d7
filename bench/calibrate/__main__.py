"""`python -m bench.calibrate`: its cost, what the endpoint is like, and what to choose. Cost and progress on stderr."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import logging
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import rewardcore
from bench.calibrate.fit import CannotFit, fit
from bench.calibrate.plot import draw
from bench.calibrate.predict import AtOnce, Row, predict, predict_row, recommended
from bench.calibrate.probe import Plan, ProbeFailed, Tell, probe
from bench.calibrate.report import Report
from bench.calibrate.verify import Observed, sizes_within, verify
from bench.endpoint_flags import add_endpoint_flags, count, parse
from rewardcore import rubrics
from rewardcore.progress import showing
from rewardcore.testing.latency import Profile

RECOMMENDED = "recommended"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options, endpoint = parse(parser, arguments)
    # Refusals, and replies that are cut short, are what is asked for here.
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)
    try:
        rubric = rubrics.named(options.rubric)
        plan = Plan.within(options.max_requests, options.max_concurrent)
    except ValueError as error:  # ConfigurationError is one
        parser.error(str(error))
    if options.plot is not None and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install rewardcore[report]")
    _say(f"{endpoint.base_url}, model {endpoint.model!r}: {plan.cost(endpoint, rubric)}")
    if options.verify is not None:
        _say(f"--verify: then never more than {options.verify_requests} on the wire (--verify-requests)")
    try:
        with _progress("requests") as tell:
            attempts = probe(endpoint, rubric, plan, tell, seed=options.seed)
        found = fit(attempts)
        with _progress("settings predicted") as tell:
            rows = predict(found, tell)
        best = recommended(rows, found.highest)
        observed: list[Observed] = []
        if options.verify is not None:
            row = _row_to_verify(options.verify, rows, best, found.profile)
            left_out = [n for n in row.makespans if n not in sizes_within(row, options.verify_requests)]
            if left_out:
                _say(f"--verify leaves out {', '.join(map(str, left_out))}, to stay below --verify-requests")
            with _progress("samples") as tell:
                observed = verify(endpoint, rubric, row, options.verify_requests, tell, seed=options.seed + 1)
        report = Report(endpoint, found, rows, best, observed)
        print(json.dumps(report.document()) if options.json else "\n".join(report.lines()))
        if options.plot is not None:
            draw(found, attempts, best, f"{endpoint.model} at {endpoint.base_url}", options.plot)
    except (ProbeFailed, CannotFit, rewardcore.RewardcoreError) as error:
        _say(f"bench.calibrate: {error}")
        return 1
    except OSError as error:
        _say(f"bench.calibrate: --plot: {error}")
        return 2
    except KeyboardInterrupt:
        _say("bench.calibrate: interrupted; what was sent is paid, and nothing was kept")
        return 130
    return 1 if any(each.seconds is None for each in observed) else 0


def _row_to_verify(choice: str, rows: list[Row], best: Row, profile: Profile) -> Row:
    if choice == RECOMMENDED:
        return best
    at_once: AtOnce = "auto" if choice == "auto" else int(choice)
    predicted = (row for row in rows if row.mode == "asyncio" and row.at_once == at_once)
    return next(predicted, None) or predict_row(profile, "asyncio", at_once)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.calibrate",
        description="Probe an endpoint, fit a latency model, and predict 16, 32, 100 and 1024 samples in every mode.",
    )
    add_endpoint_flags(parser.add_argument, max_tokens=256)
    parser.add_argument("--max-requests", type=count, default=400, help="on the wire, at most (%(default)s)")
    parser.add_argument("--max-concurrent", type=count, default=64, help="probe up to so many at once (%(default)s)")
    parser.add_argument("--rubric", default="quality", help="a rubric's name, or a TOML file (%(default)s)")
    parser.add_argument(
        "--verify",
        nargs="?",
        const=RECOMMENDED,
        type=_at_once,
        metavar="AT_ONCE",
        help="then judge on the endpoint, and show predicted beside observed: what is recommended, a number or auto",
    )
    parser.add_argument("--verify-requests", type=count, default=1500, help="of --verify, at most (%(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the samples (drawn anew each time)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the model over what was measured")
    return parser


def _at_once(text: str) -> str:
    return text if text in (RECOMMENDED, "auto") else str(count(text))


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Tell]:
    """A bar, or lines now and then: each stage counts for itself."""
    with showing(what) as tell:
        yield lambda note, done, total: tell(done, total, note)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

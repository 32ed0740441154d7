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
from rewardcore import Endpoint, rubrics
from rewardcore.progress import showing
from rewardcore.testing.latency import Profile

RECOMMENDED = "recommended"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    # Refusals, and replies that are cut short, are what is asked for here.
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)
    try:
        endpoint = Endpoint(
            options.base_url,
            options.model,
            api_key_env=options.api_key_env,
            max_tokens=options.max_tokens,
            extra_body=options.extra_body,
        )
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
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--api-key-env", default="OPENAI_API_KEY", help="variable that holds its key (%(default)s)")
    parser.add_argument("--max-requests", type=_count, default=400, help="on the wire, at most (%(default)s)")
    parser.add_argument("--max-concurrent", type=_count, default=64, help="probe up to so many at once (%(default)s)")
    parser.add_argument("--max-tokens", type=_count, default=256, help="tokens it may write per reply (%(default)s)")
    parser.add_argument("--extra-body", type=_body, metavar="JSON", help="added to every request")
    parser.add_argument("--rubric", default="quality", help="a rubric's name, or a TOML file (%(default)s)")
    parser.add_argument(
        "--verify",
        nargs="?",
        const=RECOMMENDED,
        type=_at_once,
        metavar="AT_ONCE",
        help="then judge on the endpoint, and show predicted beside observed: what is recommended, a number or auto",
    )
    parser.add_argument("--verify-requests", type=_count, default=1500, help="of --verify, at most (%(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the samples (drawn anew each time)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the model over what was measured")
    return parser


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, not {text!r}")
    return int(text)


def _at_once(text: str) -> str:
    return text if text in (RECOMMENDED, "auto") else str(_count(text))


def _body(text: str) -> dict[str, object]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"takes a JSON object: {error}") from None
    if not isinstance(body, dict):
        raise argparse.ArgumentTypeError(f"takes a JSON object, not {text!r}")
    return body


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Tell]:
    """A bar, or lines now and then: each stage counts for itself."""
    with showing(what) as tell:
        yield lambda note, done, total: tell(done, total, note)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

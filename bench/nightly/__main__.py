"""`python -m bench.nightly --device cpu|cuda`: measures a night and compares it with the last clean one.

Written to --output: night.json, summary.md, records.jsonl, logs/, and issue.md only where something changed. Exit
codes: 0 clean and nothing worse, 1 something is worse, 2 dirty or incomplete, or wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench import records
from bench.gate import revisions
from bench.gate.revisions import CannotMeasure, Revision
from bench.nightly import history
from bench.nightly.budget import Extent, extent_of
from bench.nightly.compare import FEWEST_ROUNDS
from bench.nightly.gpu import Watch
from bench.nightly.night import Device, Night
from bench.nightly.parts import NAMES, Order, budget_of, control_part, parts_of
from bench.nightly.running import RECORDS, Plan, run_night
from bench.nightly.summary import headline, issue, summary
from bench.scenarios import SIZES
from rewardcore import RewardcoreError
from rewardcore.files.atomic import write_atomically
from rewardcore.serving.signals import Terminated, terminating_on_sigterm

NIGHT, SUMMARY, ISSUE = "night.json", "summary.md", "issue.md"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        with terminating_on_sigterm():
            return run(options)
    except (RewardcoreError, OSError) as error:
        print(f"bench.nightly: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as signalled:
        write_broken_off(options)
        print(
            f"bench.nightly: broken off, nothing is decided; what was measured is in {options.output / RECORDS} and"
            f" {options.output / SUMMARY}",
            file=sys.stderr,
        )
        return 143 if isinstance(signalled, Terminated) else 130


def run(options: argparse.Namespace) -> int:
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    output, kept = options.output.absolute(), (options.history or options.output / "history").absolute()
    for directory in (output, kept):
        directory.mkdir(parents=True, exist_ok=True)
    for name in (NIGHT, SUMMARY, ISSUE, RECORDS):  # of another night, nobody must take them for this one's
        (output / name).unlink(missing_ok=True)
    order, extent = _order(options, output), Extent(options.sizes, options.rounds)
    if options.model is not None:
        extent = extent_of(order, options.sizes, options.minutes, options.without, tell)
    plan = _plan(options, replace(order, rounds=extent.rounds), extent, output, kept)
    if "http" in {part.name for part in plan.parts if not part.missing}:
        cap = budget_of(Order("http", options.device, rounds=extent.rounds), extent.sizes).max_requests
        tell(f"http: never more than {cap:,} requests to the served judge, and as many again where something changed")
    night, since = run_night(plan, tell, Watch() if options.device == "cuda" else None)
    write(night, since, output)
    path = history.keep(night, kept)
    tell(f"{output / SUMMARY}; kept as {path}")
    print(headline(night, since))
    return night.exit_code


def write(night: Night, since: Night | None, output: Path) -> None:
    history.write(night, output / NIGHT)
    texts = {SUMMARY: summary(night, since)} | ({ISSUE: issue(night, since)} if night.changed else {})
    for name, text in texts.items():
        with write_atomically(output / name) as file:
            file.write(text.encode())


def write_broken_off(options: argparse.Namespace) -> None:
    """A summary of what was measured until then, where there is none yet. It is no night, and no baseline."""
    path, output = options.output / RECORDS, options.output / SUMMARY
    if output.exists():
        return
    found = records.read(path) if path.exists() else []
    environment = found[-1].environment if found else {}
    device = Device(options.device, environment.get("gpu" if options.device == "cuda" else "cpu", "unknown"))
    why = ["it was broken off before its end"]
    model = "tiny-judge" if options.model is None else options.model.name
    when = found[0].time if found else now()
    night = Night(when, records.commit(), device, model, options.max_tokens, environment, why, options.without)
    with contextlib.suppress(OSError), write_atomically(output) as file:
        file.write(summary(replace(night, records=found), None).encode())


def _order(options: argparse.Namespace, output: Path) -> Order:
    return Order(
        "",
        options.device,
        "" if options.model is None else str(options.model.absolute()),
        options.max_tokens,
        options.rounds,
        logs=str(output / "logs"),
        gpu_memory_utilization=options.gpu_memory_utilization,
    )


def _plan(options: argparse.Namespace, order: Order, extent: Extent, output: Path, kept: Path) -> Plan:
    parts = [part for part in parts_of(order, extent.sizes) if part.name not in options.without]
    later = replace(order, first_round=order.rounds + 1)
    commit = records.commit()
    night = Night(
        now(),
        commit,
        Device(options.device),
        max_tokens=options.max_tokens,
        environment=records.environment(),
        left_out=list(dict.fromkeys(options.without)),
        notes=extent.notes,
    )
    control = [control_part(order), control_part(later)]
    return Plan(night, parts, control, output, kept, lambda before: explained(before.commit, commit))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def explained(base: str, head: str) -> Mapping[str, str]:
    """Why a digest had to change, as the commits since say; nothing where there is no history to ask."""
    with contextlib.suppress(CannotMeasure):
        return revisions.explained(Revision(base, base.rstrip("+")), Revision(head, head.rstrip("+")))
    return {}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.nightly", description=__doc__)
    parser.add_argument("--device", required=True, choices=["cpu", "cuda"])
    parser.add_argument(
        "--model", type=_directory, metavar="DIR", help="the judge (default: a tiny one, made on the spot)"
    )
    parser.add_argument(
        "--sizes", type=_sizes, default=SIZES, metavar="16,32", help=f"of {', '.join(map(str, SIZES))} (default: all)"
    )
    parser.add_argument(
        "--minutes",
        type=_count,
        default=90,
        help="with --model, that a night may take: fewer sizes and rounds where the judge is slow (%(default)s)",
    )
    parser.add_argument("--rounds", type=_rounds, default=5, help="of everything that is noisy (%(default)s)")
    parser.add_argument("--max-tokens", type=_count, default=64, help="that the judge may write a reply (%(default)s)")
    parser.add_argument(
        "--gpu-memory-utilization",
        type=_share,
        default=0.0,
        metavar="0.8",
        help="of the GPU's memory, what vLLM takes (default: vLLM's own)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=NAMES,
        help="leave out the modes at a served judge (http), the self mode with torch, or vLLM's offline engine; may be"
        " given often",
    )
    parser.add_argument(
        "--history", type=Path, metavar="DIR", help="earlier nights, and this one afterwards (default: OUTPUT/history)"
    )
    parser.add_argument("--output", type=Path, default=Path("nightly"), metavar="DIR", help="(default: %(default)s)")
    return parser


def _directory(text: str) -> Path:
    if not (Path(text) / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{text!r} has no config.json: give the directory that holds the model")
    return Path(text)


def _sizes(text: str) -> tuple[int, ...]:
    chosen = {size.strip() for size in text.split(",") if size.strip()}
    if not chosen or chosen - set(map(str, SIZES)):
        raise argparse.ArgumentTypeError(f"{text!r}: name some of {', '.join(map(str, SIZES))}, with commas between")
    return tuple(size for size in SIZES if str(size) in chosen)


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < FEWEST_ROUNDS:
        raise argparse.ArgumentTypeError(f"{text!r}: fewer than {FEWEST_ROUNDS} rounds say nothing")
    return int(text)


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, not {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise argparse.ArgumentTypeError(f"takes a share above 0 and at most 1, as 0.8, not {text!r}")
    return share


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench.report`: report/index.html, from what the harness has left behind. What it reads is told on stderr.

Exit codes: 0 written, 1 a source is broken or the page cannot be written, 2 wrong usage or a missing extra.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.harness import ROOT
from bench.report import computed, sources
from bench.report.newest import Newest
from bench.report.sources import BrokenSource
from rewardcore import RewardcoreError
from rewardcore.files.atomic import write_atomically

OUTPUT = ROOT / "report" / "index.html"
TITLE = "rewardcore, measured"
_NEEDED = {"altair": "altair", "vl_convert": "vl-convert-python"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    missing = [package for module, package in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        parser.error(f"the page is drawn with {' and '.join(missing)}: pip install '.[page]'")
    try:
        found = sources.read(options.records or [sources.RECORDS], options.asv, options.nights, options.gate)
        for sentence in found.told:
            _say(sentence)
        _write(options, found)
    except (BrokenSource, RewardcoreError) as error:
        _say(f"bench.report: {error}")
        return 1
    except KeyboardInterrupt:
        _say("bench.report: interrupted; nothing was written")
        return 130
    return 0


def _write(options: argparse.Namespace, found: sources.Sources) -> None:
    from bench.report.making import make_page  # brings altair
    from bench.report.picture import make_picture

    newest = Newest(found.records, found.nights)
    endpoints = computed.Endpoints()
    if not options.only_read:
        computed.fill(newest, _say)
        endpoints = computed.play_endpoints(_say)
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    page = make_page(options.title, made, newest, found, endpoints).encode()
    _put(options.output, page)
    _say(f"{options.output}: {len(page) / 1e6:.2f} MB, opens in any browser")
    if options.picture is not None:
        picture = make_picture(newest)
        _put(options.picture, picture)
        _say(f"{options.picture}: {len(picture) / 1e3:.0f} kB")


def _put(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RewardcoreError(f"{path.parent} cannot be made: {error.strerror or error}") from error
    with write_atomically(path) as file:
        file.write(content)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.report",
        description="One page of everything that was measured, to be opened from a disk. What is exact, quick and not"
        " recorded is computed in virtual time. A source that is not there is no error: the page says how to fill it.",
    )
    parser.add_argument(
        "--records",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help=f"of the benchmarks ({sources.shown(sources.RECORDS)})",
    )
    add = parser.add_argument
    add("--asv", type=Path, default=sources.ASV, metavar="DIR", help=f"asv's results ({sources.shown(sources.ASV)})")
    add("--nights", type=Path, default=sources.NIGHTS, metavar="DIR", help=f"nights ({sources.shown(sources.NIGHTS)})")
    add(
        "--gate",
        type=Path,
        default=sources.GATE,
        metavar="FILE",
        help=f"bench.gate --json ({sources.shown(sources.GATE)})",
    )
    add("--output", type=Path, default=OUTPUT, metavar="FILE", help=f"where the page goes ({sources.shown(OUTPUT)})")
    add("--title", default=TITLE, help="of the page (%(default)s)")
    add("--picture", type=Path, metavar="FILE.png", help="also write the first plots as a picture")
    add("--only-read", action="store_true", help="compute nothing: only what the files say")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

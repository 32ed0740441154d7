"""asv with its results counted: `python -m bench.history run HEAD~3..HEAD`, `continuous A B`, or any of its commands.

asv ends with the same code for a regression and for an environment that it could not make, and a commit without results
looks like one that nobody asked for. Here every commit that was to be measured must have a number, or an "n/a", in
every series; else the end is 2.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import ROOT

RESULTS = ROOT / ".asv" / "results"
MEASURING = ("run", "continuous")
INCOMPLETE = 2
#: What asv takes in the place of commits, and finds for itself.
FOUND_BY_ASV = ("ALL", "EXISTING", "HASHFILE:", "TAGS", "MISSING")


@dataclass(frozen=True)
class Count:
    """Of one commit: how many series there are, and those without a result."""

    commit: str
    expected: int
    missing: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        return self.expected > 0 and not self.missing

    def __str__(self) -> str:
        found = f"{self.commit[:10]}: {self.expected - len(self.missing)} of {self.expected} results"
        shown = ", ".join(self.missing[:3]) + (", …" if len(self.missing) > 3 else "")
        return f"{found}; without: {shown}" if self.missing else found


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in MEASURING:
        return _asv(*(arguments or ["--help"]))
    before = _written()
    is_new = "NEW" in arguments
    arguments = [since(before) if each == "NEW" else each for each in arguments]
    commits, patterns = asked(arguments)
    if is_new and not commits:
        print("bench.history: the newest commit has its results: nothing is new", file=sys.stderr)
        return 0
    _asv("machine", "--yes")  # else asv asks questions
    # A forked child has everything imported: a series costs milliseconds in place of a second.
    code = _asv(*arguments, "--launch-method", "forkserver", "--show-stderr")
    commits += [commit for commit in _changed(before, _written()) if commit not in commits]
    counts = [count(RESULTS, commit, patterns) for commit in commits]
    for each in counts:
        print(each, file=sys.stderr)
    if not all(each.is_complete for each in counts) or not counts:
        print("bench.history: not everything was measured; see asv's errors above", file=sys.stderr)
        return INCOMPLETE
    return code


def since(measured: Iterable[str]) -> str:
    """What NEW stands for: whatever came after the newest commit with results; without any, the newest alone.

    asv's own NEW is all that ever was where there are no results, an error where nothing is new, and no name to count.
    """
    known = set(measured)
    newest = next((commit for commit in _walked("HEAD") if commit in known), None)
    return "HEAD^!" if newest is None else f"{newest}..HEAD"


def asked(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The commits that asv is told to measure, as far as they are named, and the series, as regular expressions."""
    parser = argparse.ArgumentParser(prog="bench.history", add_help=False, allow_abbrev=False)
    parser.add_argument("command")
    parser.add_argument("revisions", nargs="*")
    parser.add_argument("-b", "--bench", action="append", default=[])
    for flags in (("-s", "--steps"), ("--date-period",)):
        parser.add_argument(*flags, dest="chosen")  # asv takes some of the range
    for flags in (
        ("-E", "--environment"),
        ("-m", "--machine"),
        ("-j", "--parallel"),
        ("-a", "--attribute"),
        ("--config",),
    ):
        parser.add_argument(*flags)
    options, _ = parser.parse_known_args(list(arguments))
    if options.chosen or any(each.startswith(FOUND_BY_ASV) for each in options.revisions):
        return [], options.bench
    revisions = options.revisions or (["HEAD"] if options.command == "run" else ["HEAD^", "HEAD"])
    ranges = [each if ".." in each or each.endswith(("^!", "^-")) else f"{each}^!" for each in revisions]
    return [commit for each in ranges for commit in _walked(each)], options.bench


def count(results: Path, commit: str, patterns: Sequence[str] = ()) -> Count:
    """A series whose result is null has failed; "n/a" is NaN, and is one."""
    names = [
        name
        for name in _read(results / "benchmarks.json")
        if name != "version" and (not patterns or any(re.search(pattern, name) for pattern in patterns))
    ]
    found = {name for file in results.glob(f"*/{commit[:8]}*.json") for name in _complete(_read(file))}
    return Count(commit, len(names), tuple(sorted(set(names) - found)))


def _complete(document: dict[str, Any]) -> Iterator[str]:
    for name, row in document["results"].items():
        values = dict(zip(document["result_columns"], row, strict=False)).get("result")
        if values and None not in values:
            yield name


def _written() -> dict[str, int]:
    """commit → when its results were last written."""
    files = (file for file in RESULTS.glob("*/*.json") if file.name != "machine.json")
    return {_read(file)["commit_hash"]: file.stat().st_mtime_ns for file in files}


def _changed(before: dict[str, int], after: dict[str, int]) -> list[str]:
    return [commit for commit, when in after.items() if before.get(commit) != when]


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {}


def _walked(revisions: str) -> list[str]:
    """As asv walks, newest first: what a merge brought in is the merge's."""
    return _git("rev-list", "--first-parent", revisions).split()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench.history: git {' '.join(arguments)}: {done.stderr.strip().splitlines()[0]}")
    return done.stdout


def _asv(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

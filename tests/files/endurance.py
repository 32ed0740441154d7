"""`python -m tests.files.endurance`: what `rewardcore judge` takes of memory and time for files of many rows.

The endpoint is simulated and answers at once. Peak memory is the command's own, as the system counted it; the last
line is of a run that finds all rows but one done. A script for people, not a test: it takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rewardcore.files.journal import Journal
from rewardcore.files.json_lines import line_of
from rewardcore.files.rows import open_rows
from rewardcore.files.samples import judged
from rewardcore.testing import SimulatedServer
from rewardcore.verdict import Verdict


def rows(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"id": number, "prompt": f"What is {number} + {number}?", "response": f"It is {2 * number}. " * 20}


class Run(NamedTuple):
    first_request: float  # seconds until the endpoint had it, to a tenth
    seconds: float
    peak_mib: float
    summary: dict[str, Any]


def command(source: Path, out: Path, server: SimulatedServer) -> Run:
    where = ["--base-url", server.base_url, "--model", "judge"]
    arguments = ["judge", str(source), str(out), *where, "--json", "--quiet"]
    before, started = server.stats().requests, time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "rewardcore", *arguments], stdout=subprocess.PIPE)
    at_once = os.WEXITED | os.WNOHANG | os.WNOWAIT  # what it used is read when it is reaped
    while server.stats().requests == before and os.waitid(os.P_PID, process.pid, at_once) is None:
        time.sleep(0.1)
    first_request = time.monotonic() - started
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"rewardcore judge ended with {process.returncode}")
    seconds = time.monotonic() - started
    return Run(first_request, seconds, usage.ru_maxrss / 1024, json.loads(printed.splitlines()[-1]))


def finish_all_but_one(source: Path, out: Path, server: SimulatedServer) -> None:
    """A journal as a run leaves it that was killed before its last row."""
    given = open_rows(str(source))
    a_row = out.with_name("one.jsonl")
    a_row.write_bytes(line_of(next(rows(1))))
    command(a_row, out.with_name("one-out.jsonl"), server)
    configuration = json.loads(out.with_name("one-out.jsonl.run.json").read_bytes())["configuration"]
    verdict = Verdict("ok", 0.5, "Fine, and so on. " * 20 + "<score>5</score>", attempts=1, latency=0.5)
    with Journal(out.with_name(out.name + ".partial"), configuration | {"data": given.fingerprint}) as journal:
        for row in given.read({0}):
            journal.append(row.index, {"row": judged(row, verdict)})  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 200_000])
    parser.add_argument("--resumed", type=int, default=1_000_000, help="rows of the run that goes on; 0 leaves it out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, SimulatedServer() as server:
        source, out = Path(directory, "in.jsonl"), Path(directory, "out.jsonl")
        for count in [*options.rows, *[options.resumed] * bool(options.resumed)]:
            with source.open("wb") as file:
                file.writelines(map(line_of, rows(count)))
            is_resumed = count == options.resumed
            if is_resumed:
                finish_all_but_one(source, out, server)
            run = command(source, out, server)
            print(
                f"{run.summary['rows']:,} rows, {run.summary['resumed']:,} of them done before: the first request after"
                f" {run.first_request:.1f} s, all of it {run.seconds:.0f} s, {run.peak_mib:.0f} MiB at most",
                flush=True,
            )
            for each in Path(directory).iterdir():
                each.unlink()


if __name__ == "__main__":
    main()

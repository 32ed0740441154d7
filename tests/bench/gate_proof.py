"""The long proof of the gate: `tox -e gate-proof`. Every planted defect is caught, and ten A/A runs raise no alarm.

`python -m tests.bench.gate_proof [--runs N] [--only defects|alarms]` plants each defect in what is installed from the
working tree, asks the tier that is there for it, and says which figure told; then it runs the exact and the instruction
tier in full over the same revision, N times. Ends with 1 if a defect passed or an alarm was raised.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.gate import exact, instructions, paired, revisions
from bench.gate.findings import Finding, verdict
from tests.bench.defects import DEFECTS as OF_THE_HARNESS
from tests.bench.defects import Defect
from tests.bench.gate_defects import BLOCKING, COSTS, DEFECTS, MEMORY, planted


def quietly(line: str) -> None:
    pass


def catch(base: Path, defect: Defect) -> list[Finding]:
    """What fails with the defect in it, by the tier that is to see it."""
    scenario, metric = defect.seen_by
    with planted(base, defect) as head:
        if metric == instructions.METRIC:
            findings = instructions.gate(base, head, quietly, [scenario])
        elif scenario.startswith(paired.TIER):
            findings = paired.gate(base, head, quietly, only=[scenario])
        else:
            findings = exact.gate(base, head, quietly, only=[scenario])
    return [finding for finding in findings if finding.outcome == "fail"]


def prove_defects(base: Path, defects: Iterable[Defect]) -> Iterator[str]:
    """The names of those that nobody caught."""
    for defect in defects:
        caught = [each for each in catch(base, defect) if each.metric == defect.seen_by[1]]
        told = f"{caught[0].tier}: {caught[0].metric} {caught[0].base} → {caught[0].head}" if caught else "NOT CAUGHT"
        print(f"{defect.name:55} {defect.seen_by[0]:25} {told}", flush=True)
        if not caught:
            yield defect.name


def prove_silence(base: Path, runs: int) -> Iterator[str]:
    for number in range(1, runs + 1):
        began = time.monotonic()
        findings = exact.gate(base, base, quietly) + instructions.gate(base, base, quietly)
        alarms = [f"{each.scenario} {each.metric}: {each.why}" for each in findings if each.outcome != "pass"]
        took = f"{time.monotonic() - began:.0f} s"
        print(f"A/A {number} of {runs}: {len(findings)} findings, {verdict(findings)}, {took}", *alarms, flush=True)
        yield from alarms


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gate_proof", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", choices=["defects", "alarms"])
    options = parser.parse_args()
    wrong: list[str] = []
    with revisions.installed(revisions.Revision(".", None)) as base:
        if options.only != "alarms":
            wrong += prove_defects(base, [*OF_THE_HARNESS, *DEFECTS, *COSTS, *MEMORY, BLOCKING])
        if options.only != "defects":
            wrong += prove_silence(base, options.runs)
    print(f"not as promised: {', '.join(wrong)}" if wrong else "as promised", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

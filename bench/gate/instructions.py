"""The instruction tier: what a sample costs the client, counted by valgrind, whatever else the machine does.

(I(48) − I(16)) / 32: start-up, imports and connections are in both and go. Two per cent more fail, if a second count
agrees. Without valgrind there is no count, and that is said.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.gate.children import at_once, started
from bench.gate.findings import WHOLE, Figure, Finding, Measured, Outcome, agreed

LIMIT = 1.02
#: Two counts of one revision that differ by more than this are no counts.
SPREAD = 0.01
TIER, METRIC, UNIT = "instructions", "instructions", "a sample"
_COLLECTED = re.compile(r"I\s+refs:\s+([\d,]+)")
Tell = Callable[[str], object]


def gate(base: Path, head: Path, tell: Tell, only: Sequence[str] = ()) -> list[Finding]:
    if shutil.which("valgrind") is None:
        why = "valgrind is not installed here, so nothing was counted: install it, or leave this tier out with --tiers"
        return [Finding(TIER, "(every scenario)", 0, WHOLE, "inconclusive", why=why)]
    findings = _round(base, head, tell, only)
    if any(each.outcome == "fail" for each in findings):
        tell("instructions: counting again what has grown")
        again = {each.scenario: each for each in _round(base, head, tell, only)}
        findings = [
            agreed(each, again.get(each.scenario, each)) if each.outcome == "fail" else each for each in findings
        ]
    return findings


def _round(base: Path, head: Path, tell: Tell, only: Sequence[str]) -> list[Finding]:
    def counted(name: str, python: Path) -> Measured:
        return count(python, lambda line: tell(f"instructions, {name}: {line}"), only)

    return compare(*at_once(lambda: counted("base", base), lambda: counted("head", head)))


def compare(base: Measured, head: Measured) -> list[Finding]:
    findings = []
    if not base.plan or not head.plan:
        why = f"nothing was counted: {base.failure or head.failure}"
        return [Finding(TIER, "(every scenario)", 0, WHOLE, "inconclusive", why=why)]
    for scenario, version in head.plan.items():
        outcome, why = _judge(scenario, base, head)
        before, after = (
            measured.figures[scenario][METRIC].value if scenario in measured.figures else None
            for measured in (base, head)
        )
        findings.append(Finding(TIER, scenario, version, METRIC, outcome, before, after, UNIT, why))
    return findings


def _judge(scenario: str, base: Measured, head: Measured) -> tuple[Outcome, str]:
    for name, measured in (("base", base), ("head", head)):
        if scenario not in measured.figures:
            return "inconclusive", f"nothing was counted of {name}: {measured.errors.get(scenario, 'no such scenario')}"
    before, after = float(base.figures[scenario][METRIC].value), float(head.figures[scenario][METRIC].value)
    return ("fail", f"more than {LIMIT - 1:.0%}") if after >= before * LIMIT else ("pass", "")


def count(python: Path, tell: Tell, only: Sequence[str] = ()) -> Measured:
    """Every scenario's instructions a sample, of the revision in this environment."""
    with tempfile.TemporaryDirectory(prefix="rewardcore-gate-") as directory:
        # Once without valgrind: what does not run is told at once, and no child has anything to compile.
        _, failure = _play(python, [], only, lambda line: None)
        if failure:
            return Measured(failure=failure)
        # It counts what callgrind counts, in half the time: nobody reads where the instructions were.
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--log-file={directory}/log.%p"]
        played, failure = _play(python, [*valgrind, "--cachegrind-out-file=/dev/null"], only, tell)
        if failure:
            return Measured(failure=failure)
        return slopes(played, lambda process: _collected(Path(directory) / f"log.{process}"))


def _play(python: Path, wrapper: Sequence[str], only: Sequence[str], tell: Tell) -> tuple[list[dict], str]:
    """Every line that the child wrote, the plan first; and how it failed, if it did."""
    with started(python, "bench.gate.instructions_child", *only, wrapper=wrapper) as child:
        answers = []
        while answer := child.read():
            answers.append(answer)
            if "scenario" in answer:
                tell(f"{answer['scenario']}, {answer['n']} samples")
        how = child.death()
    return answers, "" if answers and "code 0" in how else how


def slopes(played: list[dict], collected: Callable[[int], int | None]) -> Measured:
    plan, children = played[0]["plan"], played[1:]
    measured = Measured(plan)
    for scenario in plan:
        own = [each for each in children if each["scenario"] == scenario]
        counts = {(each["n"], each["time"]): collected(each["process"]) for each in own}
        if any(each["failed"] for each in own):
            measured.errors[scenario] = "not every sample was judged under valgrind"
        elif not counts or None in counts.values():
            measured.errors[scenario] = "valgrind left no count"
        else:
            few, many = min(n for n, _ in counts), max(n for n, _ in counts)
            found = [(counts[many, time] - counts[few, time]) / (many - few) for n, time in counts if n == many]
            if max(found) > min(found) * (1 + SPREAD):
                measured.errors[scenario] = f"its own counts differ by {max(found) / min(found) - 1:.1%}"
            else:
                measured.figures[scenario] = {METRIC: Figure(min(found), UNIT)}
    return measured


def _collected(log: Path) -> int | None:
    found = _COLLECTED.search(log.read_text()) if log.exists() else None
    return int(found[1].replace(",", "")) if found else None

"""The paired tier: what only a real clock shows. Both revisions built and warm, then alternating pairs.

Suspect is what is surely slower, by the pairs' bootstrap interval, and by five per cent in the median; suspects get as
many pairs again, from new processes, and fail if those agree. A control that uses nothing of ours runs along: where
that moves, it is the machine, and nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.gate.children import Child, started
from bench.gate.findings import WHOLE, Finding, Outcome
from bench.gate.statistics import ratio_of

PAIRS = 30
TIER, CHILD = "paired", "bench.gate.rounds_child"
CONTROL = "paired-control"
UNITS = {"peak memory a sample": "bytes"}
#: Seconds: what takes less is lost in the clock's own noise.
TOO_SHORT = 0.005
Tell = Callable[[str], object]
Pairs = dict[str, list[tuple[float, float]]]


class RoundFailed(Exception):
    """A revision could not run a workload. `who` is base or head."""

    def __init__(self, who: str, why: str) -> None:
        super().__init__(f"{who} cannot run it: {why}")
        self.who = who


def gate(base: Path, head: Path, tell: Tell, pairs: int = PAIRS, only: Sequence[str] = ()) -> list[Finding]:
    with started(head, CHILD) as child:
        answer = child.read()
        if answer is None:
            return [Finding(TIER, "(every scenario)", 0, WHOLE, "fail", why=f"head runs none: {child.death()}")]
    findings: list[Finding] = []
    for scenario, version in answer["plan"].items():
        if only and scenario not in (CONTROL, *only):
            continue
        try:
            findings += _measure(base, head, scenario, version, pairs, tell)
        except RoundFailed as error:
            outcome: Outcome = "fail" if error.who == "head" else "inconclusive"
            findings.append(Finding(TIER, scenario, version, WHOLE, outcome, why=str(error)))
    return doubted(findings)


def _measure(base: Path, head: Path, scenario: str, version: int, pairs: int, tell: Tell) -> list[Finding]:
    first = take_turns(base, head, scenario, pairs, tell)
    is_gated = {metric: _why_ungated(metric, found) is None for metric, found in first.items()}
    is_suspect = any(is_gated[metric] and ratio_of(found).is_suspect for metric, found in first.items())
    second: Pairs = {}
    if is_suspect and scenario != CONTROL:
        second = take_turns(base, head, scenario, pairs, lambda line: tell(f"again, {line}"))
    return [judge(scenario, metric, found, second.get(metric), version) for metric, found in first.items()]


def take_turns(base: Path, head: Path, scenario: str, pairs: int, tell: Tell) -> Pairs:
    """metric → its pairs of (base, head); who goes first changes with every pair."""
    found: Pairs = {}
    with ExitStack() as stack:
        children = {
            name: stack.enter_context(started(python, CHILD, scenario))
            for name, python in (("base", base), ("head", head))
        }
        for name, child in children.items():
            _answer(name, child)
        for number in range(pairs):
            tell(f"{scenario}: pair {number + 1} of {pairs}")
            order = ("base", "head") if number % 2 == 0 else ("head", "base")
            answers = {name: _round(name, children[name]) for name in order}
            for metric in answers["base"]:
                found.setdefault(metric, []).append((answers["base"][metric], answers["head"][metric]))
    return found


def _round(name: str, child: Child) -> dict[str, float]:
    child.tell()
    return _answer(name, child)


def _answer(name: str, child: Child) -> dict[str, float]:
    answer: dict[str, float] | None = child.read()
    if answer is None:
        raise RoundFailed(name, child.death())
    return answer


def judge(
    scenario: str,
    metric: str,
    first: Sequence[tuple[float, float]],
    second: Sequence[tuple[float, float]] | None = None,
    version: int = 1,
) -> Finding:
    """`second` are the pairs of a suspect that was measured again."""
    unit = UNITS.get(metric, "s")
    before, after = (sorted(side)[len(first) // 2] for side in zip(*first, strict=True))

    def finding(outcome: Outcome, why: str) -> Finding:
        return Finding(TIER, scenario, version, metric, outcome, before, after, unit, why)

    if why := _why_ungated(metric, first):
        return finding("inconclusive", why) if "no ratio" in why else finding("pass", why)
    ratio = ratio_of(first)
    if scenario == CONTROL:
        return finding("inconclusive", f"the control moved: {ratio}") if ratio.is_apart else finding("pass", str(ratio))
    if ratio.is_suspect and second and _why_ungated(metric, second) is None:
        again = ratio_of(second)
        both = f"{ratio}, again {again}"
        return finding("fail", both) if again.is_suspect else finding("pass", f"not confirmed: {both}")
    if ratio.is_suspect:
        return finding("inconclusive", f"suspect, and not measured again: {ratio}")
    return finding("inconclusive", f"too noisy to tell: {ratio}") if ratio.is_blurred else finding("pass", str(ratio))


def _why_ungated(metric: str, pairs: Sequence[tuple[float, float]]) -> str | None:
    if any(base <= 0 for base, _ in pairs):
        return "no ratio over a base of nothing"
    if metric not in UNITS and sorted(base for base, _ in pairs)[len(pairs) // 2] < TOO_SHORT:
        return f"not gated: a base below {TOO_SHORT * 1e3:g} ms"
    return None


def doubted(findings: Sequence[Finding]) -> list[Finding]:
    """Where the control has moved, no other ratio is believed; that a revision could not run is no ratio."""
    control = [each for each in findings if each.scenario == CONTROL]
    moved = [each.why for each in control if each.outcome != "pass"] if control else ["there was no control"]
    return [
        replace(each, outcome="inconclusive", why=moved[0])
        if moved and each.scenario != CONTROL and each.metric != WHOLE
        else each
        for each in findings
    ]

"""The exact tier: each revision runs every exact scenario once, both at the same time. Any worsening fails,
unless a commit explains it.

What is counted over sockets, or by worker processes, is counted on a real clock, and a busy machine can make it
another; such a failure is measured again, one revision after the other, and counts if it comes every time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.gate.children import at_once, started
from bench.gate.findings import Figure, Finding, Measured, agreed, compare_exact

TIMES_AGAIN = 2
Tell = Callable[[str], object]


def gate(
    base: Path,
    head: Path,
    tell: Tell,
    explained: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    only: Sequence[str] = (),
) -> list[Finding]:
    """`base` and `head` are the Pythons of their environments; `without` names backends, `only` scenarios."""

    def told(name: str) -> Tell:
        return lambda line: tell(f"exact, {name}: {line}")

    before, after = at_once(
        lambda: measure(base, told("base"), without, only), lambda: measure(head, told("head"), without, only)
    )
    findings = compare_exact(before, after, explained)
    clocked = before.clocked | after.clocked
    suspects = sorted({each.scenario for each in findings if each.outcome == "fail"} & clocked)
    for _ in range(TIMES_AGAIN if suspects else 0):
        again = compare_exact(
            measure(base, told("base again"), only=suspects),
            measure(head, told("head again"), only=suspects),
            explained,
        )
        by_metric = {(each.scenario, each.metric): each for each in again}
        findings = [
            agreed(each, by_metric.get((each.scenario, each.metric), each))
            if each.outcome == "fail" and each.scenario in clocked
            else each
            for each in findings
        ]
    return findings


def measure(python: Path, tell: Tell, without: Sequence[str] = (), only: Sequence[str] = ()) -> Measured:
    """Everything exact of the revision in this environment."""
    measured = Measured()
    arguments = [*(["--without", *without] if without else []), *(["--only", *only] if only else [])]
    with started(python, "bench.gate.exact_child", *arguments) as child:
        if (answer := child.read()) is None:
            measured.failure = child.death()
            return measured
        measured.plan = {scenario: version for scenario, (version, _) in answer["plan"].items()}
        measured.clocked = {scenario for scenario, (_, is_clocked) in answer["plan"].items() if is_clocked}
        while answer := child.read():
            scenario = answer["scenario"]
            if "error" in answer:
                measured.errors[scenario] = answer["error"]
            else:
                measured.figures[scenario] = {metric: Figure(*figure) for metric, figure in answer["figures"].items()}
            tell(f"{len(measured.figures) + len(measured.errors)} of {len(measured.plan)}, {scenario}")
        if missing := measured.plan.keys() - measured.figures.keys() - measured.errors.keys():
            measured.errors.update(dict.fromkeys(missing, child.death()))
    return measured

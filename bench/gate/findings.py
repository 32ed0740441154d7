"""What was measured of a revision, and what is said of two: pure comparisons, without a process or a clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

Outcome = Literal["pass", "fail", "inconclusive"]
Value = float | str
#: Floats that are computed in another order may differ in their last digits.
LAST_DIGITS = 1e-9
#: By tier, the share by which a figure differs from itself: less than that has not moved.
STILL = {"instructions": 0.005, "paired": 0.05}
#: By unit, what a figure may grow: a line more in `submit` is a few bytecodes more, and nobody's loss.
TOLERATED = {"bytecodes": 0.02}
#: Figures of the pace: a commit may excuse two points of one and no more. A point of a share of the requests is 0.01;
#: of anything else, a time, a count or an efficiency, it is 1 % of what base has.
PACE, POINTS, SHARE = ("profile-", "refused-"), 0.02, "of the requests"
#: In the place of a metric, where a scenario gave none.
WHOLE = "(the scenario)"


@dataclass(frozen=True)
class Figure:
    value: Value
    unit: str = ""
    direction: Literal["higher", "lower", "equal"] = "lower"


@dataclass
class Measured:
    """Of one revision: what was to be measured (scenario → version), what was, and why the rest was not.

    `clocked` are scenarios whose counts a busy machine can change; `failure` is why there is not even a plan.
    """

    plan: dict[str, int] = field(default_factory=dict)
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    clocked: set[str] = field(default_factory=set)
    failure: str = ""


@dataclass(frozen=True)
class Finding:
    tier: str
    scenario: str
    version: int
    metric: str
    outcome: Outcome
    base: Value | None = None
    head: Value | None = None
    unit: str = ""
    why: str = ""

    @property
    def has_moved(self) -> bool:
        return self.outcome != "pass" or not _is_same(self.base, self.head, STILL.get(self.tier, LAST_DIGITS))

    @property
    def change(self) -> str:
        if isinstance(self.base, str) or isinstance(self.head, str) or self.base is None or self.head is None:
            return ""
        return f"{self.head / self.base - 1:+.1%}" if self.base else f"{self.head - self.base:+g}"


def compare_exact(base: Measured, head: Measured, explained: Mapping[str, str] | None = None) -> list[Finding]:
    """Every metric of every scenario that either was to run. `explained` says why a figure had to become another."""
    findings = []
    if not base.plan or not head.plan:
        failures = {
            name: each.failure or "it has none of those asked for"
            for name, each in (("base", base), ("head", head))
            if not each.plan
        }
        # A base that is too old for this harness is no fault of head; a head that nothing can be asked of is.
        outcome: Outcome = "fail" if failures.keys() == {"head"} else "inconclusive"
        why = "; ".join(f"{name} runs no scenario of this harness: {why}" for name, why in failures.items())
        return [Finding("exact", "(every scenario)", 0, WHOLE, outcome, why=why)]
    for scenario in {**head.plan, **base.plan}:
        version = head.plan.get(scenario, base.plan.get(scenario, 0))
        if why := _why_not(scenario, base, head):
            outcome = "fail" if why.startswith("head cannot") else "inconclusive"
            findings.append(Finding("exact", scenario, version, WHOLE, outcome, why=why))
            continue
        before, after = base.figures[scenario], head.figures[scenario]
        for metric in {**after, **before}:
            outcome, why = _judge(scenario, metric, before.get(metric), after.get(metric), explained or {})
            unit = (before.get(metric) or after[metric]).unit
            values = (
                before[metric].value if metric in before else None,
                after[metric].value if metric in after else None,
            )
            findings.append(Finding("exact", scenario, version, metric, outcome, *values, unit, why))
    return findings


def _why_not(scenario: str, base: Measured, head: Measured) -> str:
    for name, measured in (("base", base), ("head", head)):
        if scenario not in measured.plan:
            return f"{name} has no such scenario"
    if scenario in base.errors:
        return f"base cannot run it: {base.errors[scenario]}"
    if scenario in head.errors:
        return f"head cannot run it, base can: {head.errors[scenario]}"
    for name, measured in (("base", base), ("head", head)):
        if not measured.figures.get(scenario):
            return f"nothing was measured of {name}"
    return ""


def _judge(
    scenario: str, metric: str, before: Figure | None, after: Figure | None, explained: Mapping[str, str]
) -> tuple[Outcome, str]:
    if before is None or after is None:
        return "inconclusive", f"{'base' if before is None else 'head'} has no such figure"
    if _is_same(before.value, after.value):
        return "pass", ""
    why = _explanation(scenario, metric, explained)
    if before.direction == "equal" or isinstance(before.value, str) or isinstance(after.value, str):
        # What is neither better nor worse is another everywhere, so that its name alone will do.
        why = why or explained.get(metric, "")
        return ("pass", f"explained: {why}") if why else ("fail", "changed, and no commit explains it")
    is_better = after.value < before.value if before.direction == "lower" else after.value > before.value
    if is_better:
        return "pass", "better"
    worse = abs(after.value - before.value)
    if worse < TOLERATED.get(before.unit, 0.0) * abs(before.value):
        return "pass", "within what is tolerated"
    if not why:
        is_half = metric in explained
        return "fail", f"to explain it, name the scenario too: {scenario} {metric}" if is_half else ""
    most = POINTS * (1.0 if before.unit == SHARE else abs(before.value))
    if scenario.startswith(PACE) and not _is_same(worse, most) and worse > most:
        return "fail", f"explained, but worse by more than two points: {why}"
    return "pass", f"explained: {why}"


def _explanation(scenario: str, metric: str, explained: Mapping[str, str]) -> str:
    """Why this figure had to become another: of the scenario by its name or a pattern such as `profile-*`."""
    for figure, why in explained.items():
        pattern, _, named = figure.partition(" ")
        if named.strip() == metric and fnmatchcase(scenario, pattern):
            return why
    return ""


def _is_same(one: Value | None, other: Value | None, within: float = LAST_DIGITS) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other) <= within * max(abs(one), abs(other))
    return one == other


def agreed(first: Finding, again: Finding) -> Finding:
    """A failure that may be the machine's counts only where it comes again."""
    if again.outcome == "fail":
        return first
    why = again.why or f"not confirmed: measured again, {again.base} and {again.head}"
    return replace(again, why=why)


def verdict(findings: Iterable[Finding]) -> Outcome:
    """Of all together: a failure before a doubt, a doubt before a pass, and nothing at all is a doubt."""
    outcomes = {finding.outcome for finding in findings}
    if "fail" in outcomes:
        return "fail"
    return "pass" if outcomes == {"pass"} else "inconclusive"


EXIT_CODES: dict[Outcome, int] = {"pass": 0, "fail": 1, "inconclusive": 2}

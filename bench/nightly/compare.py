"""What changed since the last clean night: pure, over records alone.

Exact figures count at any worsening, as in the gate. Noisy ones by their rounds: worse is what the bootstrap interval
of the ratio of medians puts surely above 1, and by a limit in the median. On a GPU that is 5 %, as in the gate, and
10 % for what goes through vLLM: its scheduler forms other batches each time, and several processes wait for one
another. A CPU has neighbours: one and the same work differed by a third in its own CPU time there, and fourfold on the
wall clock, so that its limits, 50 % and fourfold, show hardly more than that the path works. Bytes, tokens and shares
do not depend on neighbours: 5 % everywhere. What an engine sets aside has no rounds, and counts by its value. A control
may move by less than the limit of what it stands beside. Nights may drift: five times 4 % is no change here.

With another torch a model writes other texts, and a prediction follows other code, and no commit is at fault: such
figures (`OF_THE_PACKAGES`) are compared only with the newest clean night of the same packages, driver and GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from bench.gate.findings import Figure, Finding, Measured, Outcome, compare_exact
from bench.gate.statistics import Ratio, ratio_of_rounds
from bench.nightly.history import baseline
from bench.nightly.night import Night
from bench.nightly.parts import CONTROL_SCENARIOS
from bench.nightly.series import Series, series_of
from bench.records import Record
from bench.scenarios import REGISTRY

#: Fewer rounds say nothing.
FEWEST_ROUNDS = 3
COUNTED_LIMIT = 1.05
#: device → (what is the device's own time, what also waits for other processes)
TIME_LIMITS = {"cuda": (1.05, 1.10), "cpu": (1.5, 4.0)}
TIMES = ("s", "1/s")
WAITING_BACKENDS = ("vllm", "vllm-offline", "loopback")
CONTROL = tuple(scenario.id for scenario in CONTROL_SCENARIOS)
CONTROL_WORK = dict(zip(CONTROL, ("products of matrices", "plain requests"), strict=True))
#: Exact figures, by how they begin, that depend on more than our code ...
OF_THE_PACKAGES = ("verdict digest", "completion tokens", "predicted peak")
#: ... and what must be the same, by its name in a record's environment, before they are compared.
PACKAGES = ("torch", "transformers", "vllm", "driver", "gpu")
Explained = Callable[[Night], Mapping[str, str]]


def limit_of(scenario: str, unit: str, device: str) -> float:
    if unit not in TIMES:
        return COUNTED_LIMIT
    known = REGISTRY.get(scenario)
    own, waiting = TIME_LIMITS[device]
    return waiting if known is not None and known.backend in WAITING_BACKENDS else own


def compare(
    night: Night,
    nights: Sequence[Night],
    unfinished: Collection[str] = (),
    explained: Explained = lambda night: {},
) -> list[Finding]:
    """Every figure of the night that a night before has too; and every one that this night no longer has.

    `nights` are those that a baseline can be chosen from, oldest first. A scenario that was not measured to its end is
    not compared: that it is missing is told elsewhere.
    """
    findings: list[Finding] = []
    tonight = series_of(night.records)
    alike = [each for each in nights if packages_of(each) == packages_of(night)]
    for scenario, series in tonight.items():
        version = next(iter(series.values())).version
        before = baseline(nights, scenario, version)
        if before is None or scenario in CONTROL or scenario in unfinished:
            continue
        then = series_of(before.records)[scenario]
        findings += _exact(scenario, version, _of_the_packages(then, False), series, explained(before))
        if (other := baseline(alike, scenario, version)) is not None:
            theirs = _of_the_packages(series_of(other.records)[scenario], True)
            findings += _exact(scenario, version, theirs, series, explained(other))
        for metric, base in then.items():
            if not base.is_compared or base.exact:
                continue
            if metric in series:
                findings.append(_noisy(scenario, version, metric, base, series[metric], night.device.kind))
        findings += [
            Finding("rounds", scenario, version, metric, "fail", base.middle, None, base.unit, "it is no longer there")
            for metric, base in then.items()
            if base.is_compared and metric not in series
        ]
    return findings


def packages_of(night: Night) -> tuple[str | None, ...]:
    return tuple(night.environment.get(name) for name in PACKAGES)


def _of_the_packages(series: Mapping[str, Series], wanted: bool) -> dict[str, Series]:
    """The figures that depend on them, or all others."""
    return {metric: each for metric, each in series.items() if metric.startswith(OF_THE_PACKAGES) == wanted}


def compared_with(night: Night, nights: Sequence[Night]) -> dict[str, str]:
    """scenario → the night that it was compared with, by its label."""
    found = {scenario: baseline(nights, scenario, version) for scenario, version in night.scenarios.items()}
    return {scenario: before.label for scenario, before in found.items() if before is not None}


def _exact(
    scenario: str,
    version: int,
    then: Mapping[str, Series],
    now: Mapping[str, Series],
    explained: Mapping[str, str],
) -> list[Finding]:
    shared = [metric for metric, base in then.items() if base.exact and metric in now]

    def measured(series: Mapping[str, Series]) -> Measured:
        figures = {
            metric: Figure(series[metric].value, series[metric].unit, series[metric].direction) for metric in shared
        }
        return Measured({scenario: version}, {scenario: figures})

    return compare_exact(measured(then), measured(now), explained) if shared else []


def _noisy(scenario: str, version: int, metric: str, base: Series, head: Series, device: str) -> Finding:
    def finding(outcome: Outcome, why: str) -> Finding:
        return Finding("rounds", scenario, version, metric, outcome, base.middle, head.middle, base.unit, why)

    few = min(len(base.figures), len(head.figures))
    if base.rounds and few < FEWEST_ROUNDS:
        return finding("inconclusive", f"{few} rounds say nothing: {FEWEST_ROUNDS} are the least (--rounds)")
    try:
        ratio = worsening(base, head, limit_of(scenario, base.unit, device))
    except ValueError:  # no ratio with nothing
        return finding("fail" if _is_worse(base, head) else "pass", "from nothing, or to nothing")
    if ratio.is_suspect:
        return finding("fail", str(ratio))
    if ratio.is_blurred:
        return finding("inconclusive", f"too noisy to tell: {ratio}")
    return finding("pass", f"better: {ratio}" if ratio.is_better else str(ratio))


def _is_worse(base: Series, head: Series) -> bool:
    then, now = float(base.middle or 0.0), float(head.middle or 0.0)
    return now < then if base.direction == "higher" else now > then


def worsening(base: Series, head: Series, limit: float) -> Ratio:
    """How many times worse it is, whichever direction is better."""
    if base.direction == "higher":
        return ratio_of_rounds(head.figures, base.figures, limit)
    return ratio_of_rounds(base.figures, head.figures, limit)


def control_moved(records: Iterable[Record], nights: Sequence[Night], device: str) -> list[str]:
    """Whether the machine was another one: than in the baseline, or at the end of the night than at its beginning."""
    moved = []
    for scenario, found in series_of(records).items():
        before = baseline(nights, scenario, next(iter(found.values())).version)
        for metric, series in found.items() if scenario in CONTROL else ():
            limit, rounds = limit_of(scenario, series.unit, device), series.figures
            half = len(rounds) // 2
            what = CONTROL_WORK[scenario]
            if half and (within := ratio_of_rounds(rounds[:half], rounds[half:], limit)).is_apart:
                moved.append(f"the control moved during the night: {what} took {within} as long at its end")
            then = series_of(before.records)[scenario].get(metric) if before is not None else None
            if then is not None and (since := ratio_of_rounds(then.figures, rounds, limit)).is_apart:
                moved.append(f"the control moved since {before.label}: {what} took {since} as long")
    return moved

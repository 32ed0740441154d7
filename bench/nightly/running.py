"""A night, from the first control to the last comparison: parts one after the other, each of which may fail alone.

What is heard is written at once, so that whatever ends this process loses no figure. What has changed is measured
again, with all that stands beside it, and counts if both times agree; then the second time stands in the document.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench import records
from bench.gate.findings import Finding
from bench.nightly import history
from bench.nightly.compare import Explained, compare, compared_with, control_moved
from bench.nightly.gpu import Watch
from bench.nightly.night import Device, Night
from bench.nightly.parts import Part, PartFailed
from bench.records import Record
from bench.scenarios import REGISTRY

Tell = Callable[[str], object]
RECORDS = "records.jsonl"


@dataclass(frozen=True)
class Plan:
    """What a night is to do; `night` is what is known of it beforehand. `control` is a part for each time that it is
    run: before the others, and after them.
    """

    night: Night
    parts: Sequence[Part]
    control: Sequence[Part]
    output: Path
    history: Path
    explained: Explained = lambda night: {}


@dataclass
class Heard:
    """What parts have told, kept at once. `failures` are of parts and of scenarios, `unfit` are scenarios that do not
    fit the memory, `unfinished` all scenarios that either stands for, `said` the last words of parts; `machine` is the
    device, the model and the environment.
    """

    path: Path
    commit: str
    tell: Tell
    records: list[Record] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    unfit: set[str] = field(default_factory=set)
    said: dict[str, tuple[str, ...]] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)

    def run(self, part: Part, ids: Sequence[str]) -> None:
        """What a part tells before it fails is kept like any other's."""
        self.tell(f"{part.name} begins")
        try:
            part.measure(ids, lambda message: self._hear(part, message))
        except PartFailed as failure:
            self._failed(part.name, str(failure), ids)
            self.said[part.name] = tuple(failure.said)
        else:
            told = {record.scenario for record in self.records} | self.unfinished
            for id in ids:
                if id not in told:
                    self._failed(id, "nothing was told of it", [id])

    def _hear(self, part: Part, message: Mapping[str, Any]) -> None:
        if "records" in message:
            found = [replace(Record(**each), run=records.RUN, commit=self.commit) for each in message["records"]]
            records.write(found, self.path)
            self.records += found
        elif "failed" in message:
            self._failed(message["failed"], message["why"], [message["failed"]])
        elif "unfit" in message:
            self.unfit.add(message["unfit"])
            self.unfinished.add(message["unfit"])
            self.tell(f"{message['unfit']} does not fit the memory")
        elif "machine" in message:
            self.machine = {**message["machine"], "device": Device(**message["machine"]["device"])}
        else:
            self.tell(f"{part.name}: {message['tell']}")

    def _failed(self, name: str, why: str, ids: Iterable[str]) -> None:
        self.failures[name] = why
        self.unfinished.update(ids)
        self.tell(f"{name} failed: {why}")


def run_night(plan: Plan, tell: Tell, watch: Watch | None = None) -> tuple[Night, Night | None]:
    """The night, and the newest one that it was compared with."""
    nights, problems = history.read(plan.history)
    notes = [*plan.night.notes, *problems]
    heard = Heard(plan.output / RECORDS, plan.night.commit, tell)
    again = replace(heard, records=[], failures={}, unfinished=set(), unfit=set(), said={})
    with watch or contextlib.nullcontext():
        missing = _measure(plan, heard)
        night = replace(plan.night, **heard.machine)
        before = history.comparable(nights, night)
        moved = control_moved(heard.records, before, night.device.kind)

        def doubts() -> list[str]:
            seen = watch.strangers_on(night.environment.get("gpu uuid", "")) if watch is not None else []
            return [*moved, *([f"another process used the GPU: {', '.join(seen)}"] if seen else [])]

        def compared(what: Heard) -> list[Finding]:
            measured = replace(night, records=what.records)
            return doubted(compare(measured, before, what.unfinished, plan.explained), doubts())

        findings = compared(heard)
        if suspects := {finding.scenario for finding in findings if finding.outcome == "fail"}:
            _measure_again(plan, suspects, again)
            findings = confirmed(findings, compared(again))
    night = replace(night, records=_kept(heard, again), findings=findings)
    failures = heard.failures | {f"{name}, measured again": why for name, why in again.failures.items()}
    dirt = [f"{name} failed: {why}" for name, why in failures.items()]
    dirt += [f"{name} was not measured: {why}" for name, why in missing.items()]
    for id in sorted(heard.unfit | again.unfit):
        did_fit = history.baseline(before, id, REGISTRY[id].version) is not None
        (dirt if did_fit else notes).append(f"{id} {'no longer fits' if did_fit else 'does not fit'} the memory")
    if watch is not None and watch.is_blind:
        notes.append("nobody could tell whether others used the GPU: nvidia-smi showed no process")
    labels = compared_with(night, before)
    night = replace(
        night,
        not_measured=missing | failures,
        said=heard.said | again.said,
        why_not=dirt + doubts(),
        notes=notes,
        compared_with=labels,
    )
    return night, next((each for each in reversed(before) if each.label in labels.values()), None)


def _measure(plan: Plan, heard: Heard) -> dict[str, str]:
    """Every part that can be; of those that cannot, why."""
    first, *rest = plan.control
    heard.run(first, [scenario.id for scenario in first.scenarios])
    missing = {}
    for part in plan.parts:
        if part.missing or not heard.machine:
            missing[part.name] = part.missing or "the control had failed before"
            heard.tell(f"{part.name} is not measured: {missing[part.name]}")
        else:
            heard.run(part, [scenario.id for scenario in part.scenarios])
    for part in rest if heard.machine else ():
        heard.run(part, [scenario.id for scenario in part.scenarios])
    return missing


def _measure_again(plan: Plan, suspects: Iterable[str], again: Heard) -> None:
    """With whoever stands beside a suspect: a mode is nothing without its baseline."""
    for part in plan.parts:
        groups = {scenario.group for scenario in part.scenarios if scenario.id in suspects}
        if ids := [scenario.id for scenario in part.scenarios if scenario.group in groups]:
            again.tell(f"{part.name}: something changed, and is measured again: {', '.join(ids)}")
            again.run(part, ids)


def doubted(findings: Sequence[Finding], doubts: Sequence[str]) -> list[Finding]:
    """Where the machine was not what it is in other nights, no time is believed; what is exact does not ask it."""
    return [
        replace(finding, outcome="inconclusive", why=f"doubted, as the machine was another: {finding.why}")
        if doubts and finding.tier == "rounds" and finding.outcome == "fail"
        else finding
        for finding in findings
    ]


def confirmed(first: Sequence[Finding], second: Sequence[Finding]) -> list[Finding]:
    """A change counts where it comes a second time."""
    again = {(finding.scenario, finding.metric): finding for finding in second}

    def decide(finding: Finding) -> Finding:
        if finding.outcome != "fail":
            return finding
        repeated = again.get((finding.scenario, finding.metric))
        if repeated is None:
            return replace(finding, outcome="inconclusive", why=f"suspect, and not measured again: {finding.why}")
        if repeated.outcome != "fail":
            return replace(repeated, why=f"not confirmed: {finding.why or finding.head}, again {repeated.why}")
        is_same = repeated.why == finding.why
        return repeated if is_same else replace(repeated, why=f"{finding.why}, again {repeated.why}")

    return [decide(finding) for finding in first]


def _kept(heard: Heard, again: Heard) -> list[Record]:
    """Of what was measured twice to its end, the second time: what nobody confirmed must not be the next baseline."""
    repeated = {record.scenario for record in again.records} - again.unfinished
    return [each for each in heard.records if each.scenario not in repeated] + [
        each for each in again.records if each.scenario in repeated
    ]

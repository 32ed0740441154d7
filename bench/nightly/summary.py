"""A night for people: its verdict in the first line, then what was measured, what changed, and what is missing.

`issue` is what to open where something is worse: a title, and a body that says how to find the commit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.gate.findings import Finding
from bench.nightly.compare import COUNTED_LIMIT, OF_THE_PACKAGES, PACKAGES, TIME_LIMITS, packages_of
from bench.nightly.night import Night
from bench.nightly.tables import sections, table, told

_HEADINGS = ("", "scenario", "figure", "then", "now", "how much worse, and between what surely")
#: So many changes stand in the first lines.
_FIRST = 5


def summary(night: Night, since: Night | None) -> str:
    """`since` is the newest night that it was compared with."""
    lines = [f"# {headline(night, since)}", "", _where(night), "", *_first_things(night), *sections(night)]
    lines += [*_changes(night, since), *_missing(night), *_environment(night, since)]
    return "\n".join(lines).rstrip() + "\n"


def issue(night: Night, since: Night | None) -> str:
    """A line for the title, an empty one, and the body."""
    worst, *others = _worst_first(night)
    more = f" and {len(others)} more" if others else ""
    title = f"Nightly: {worst.scenario}, {worst.metric} {worst.change or 'changed'}{more} on {night.device.name}"
    lines = [title, "", f"{_worse(night)} since {_last(since)}.", "", _where(night), ""]
    lines += table(_HEADINGS, [_row("worse", finding) for finding in [worst, *others]])
    lines += ["", "Each was measured twice in this night, and both times agree."]
    if not night.is_clean:
        lines += ["The night was dirty, so that it is no baseline, and this comes again until a clean one:", ""]
        lines += _bullets(night.why_not)
    lines += ["", *_how_to_find(night, since), *_environment(night, since)]
    return "\n".join(lines).rstrip() + "\n"


def headline(night: Night, since: Night | None) -> str:
    worse = f"{_worse(night)} since {_last(since)}"
    if not night.is_clean:
        more = f" (and {len(night.why_not) - 1} more)" if len(night.why_not) > 1 else ""
        return f"❔ Dirty, and no baseline: {night.why_not[0]}{more}" + (f"; and {worse}" if night.changed else "")
    if night.changed:
        return f"❌ Changed: {worse}"
    if since is None:
        return "✅ Clean; there is no clean night before it to compare with"
    return f"✅ Clean, and nothing is worse since {_last(since)}"


def _worse(night: Night) -> str:
    return "1 figure is worse" if len(night.changed) == 1 else f"{len(night.changed)} figures are worse"


def _worst_first(night: Night) -> list[Finding]:
    """What has no ratio, as a digest, before what has one."""

    def times(finding: Finding) -> float:
        if isinstance(finding.base, str) or isinstance(finding.head, str) or not finding.base or not finding.head:
            return math.inf
        return max(finding.head / finding.base, finding.base / finding.head)

    return sorted(night.changed, key=times, reverse=True)


def _last(since: Night | None) -> str:
    return "the last clean night" if since is None else since.label


def _where(night: Night) -> str:
    return (
        f"{night.short_commit} on {night.device.kind} ({night.device.name}), model {night.model}, replies of at most"
        f" {night.max_tokens} tokens; begun {night.when[:10]} {night.when[11:16]} UTC."
    )


def _first_things(night: Night) -> Iterator[str]:
    """What somebody must know who reads no further."""
    worst = _worst_first(night)
    first = [f"**{each.scenario}, {each.metric}**: {_then_and_now(each)}" for each in worst[:_FIRST]]
    first += [f"and {len(worst) - _FIRST} more, below"] if len(worst) > _FIRST else []
    first += [f"dirty: {reason}" for reason in night.why_not]
    first += [f"left out on purpose: {', '.join(night.left_out)}"] if night.left_out else []
    if night.findings:
        counts = ", ".join(f"{len(found)} {word}" for word, found in _moved(night).items() if found)
        first.append(f"{len(night.findings):,} figures compared: {counts or 'all as they were, within their limits'}")
    yield from [*_bullets(first), ""] if first else []


def _moved(night: Night) -> dict[str, list[Finding]]:
    """What is worth a line, by what it is called."""
    passed = [finding for finding in night.findings if finding.outcome == "pass"]
    return {
        "worse": _worst_first(night),
        "better": [finding for finding in passed if finding.why.startswith("better")],
        "doubtful": [finding for finding in night.findings if finding.outcome == "inconclusive"],
        "not confirmed": [finding for finding in passed if finding.why.startswith("not confirmed")],
    }


def _changes(night: Night, since: Night | None) -> Iterator[str]:
    yield from [f"## Changes since {_last(since)}", ""]
    if not night.findings:
        yield from ["Nothing could be compared: no clean night before it has this device, model and length.", ""]
        return
    own, waiting = TIME_LIMITS[night.device.kind]
    limits = f"{own:g} × the time, {waiting:g} × through vLLM, {COUNTED_LIMIT:g} × of whatever else is measured"
    rows = [_row(word, finding) for word, found in _moved(night).items() for finding in found]
    yield from table(_HEADINGS, rows) if rows else ["None."]
    yield from ["", f"What counts, if it comes twice: any worsening of what is exact; else {limits}.", ""]
    if since is not None and packages_of(since) != packages_of(night):
        figures, packages = " and ".join(OF_THE_PACKAGES), ", ".join(PACKAGES)
        yield from [f"Not compared unless {packages} are the same: {figures}.", ""]
    if earlier := sorted({label for label in night.compared_with.values() if label != _last(since)}):
        yield from [f"Some are not in that night, and were compared with {', '.join(earlier)}.", ""]
    if fresh := [scenario for scenario in night.scenarios if scenario not in night.compared_with]:
        yield from [f"New, with nothing to compare: {', '.join(fresh)}.", ""]


def _row(word: str, finding: Finding) -> tuple[str, ...]:
    why = finding.why.removeprefix(word).removeprefix(": ") or finding.change
    values = (told(finding.base, finding.unit), told(finding.head, finding.unit))
    return word, finding.scenario, finding.metric, *values, why


def _then_and_now(finding: Finding) -> str:
    change = f" ({finding.change})" if finding.change else ""
    return f"{told(finding.base, finding.unit)} → {told(finding.head, finding.unit)}{change}"


def _missing(night: Night) -> Iterator[str]:
    yield from ["## Not measured", ""]
    reasons = [f"{part}: left out on purpose (--without {part})" for part in night.left_out]
    reasons += [f"{name}: {why}" for name, why in night.not_measured.items()]
    yield from _bullets([*reasons, *night.notes]) or ["Everything was."]
    for part, lines in night.said.items():
        yield from ["", f"The last words of {part}:", "", "```", *lines, "```"]
    yield ""


def _environment(night: Night, since: Night | None) -> Iterator[str]:
    """What is different since then stands beside it."""
    then = night.environment if since is None else since.environment
    rows = [
        (name, value, "" if then.get(name) == value else f"was {then.get(name, 'unknown')}")
        for name, value in night.environment.items()
    ]
    then_called = "" if since is None else f"on {_last(since)}, if another"
    yield from ["## Environment", "", *table(("", "this night", then_called), rows)]


def _how_to_find(night: Night, since: Night | None) -> Iterator[str]:
    if since is None or "unknown" in (since.commit, night.commit):
        return
    base, head = since.commit.rstrip("+")[:12], night.commit.rstrip("+")[:12]
    if base == head:
        yield from ["Both nights measured the same commit: see what else is different, below.", ""]
        return
    gate = f"tox -e gate -- --base {base} --head {head}"
    yield from ["To find the commit:", "", "```sh", f"git log --oneline {base}..{head}"]
    yield from [f"{gate}   # what is exact, on any machine", "```", ""]


def _bullets(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]

"""What there is to report: records, nights, asv's results and a gate's verdicts, read from their files.

A source that is not there is empty, and its section says how to fill it. One that is broken is an error that names the
file and the line: a page that silently leaves something out would be believed. Only a line that a killed writer left
unfinished is passed over, as bench/records.py means it, and told.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import records
from bench.gate import history
from bench.harness import ROOT
from bench.records import Record

RECORDS = records.FILE
ASV = history.RESULTS
NIGHTS = ROOT / "nightly" / "history"
GATE = records.DIRECTORY / "gate.json"

Points = list[tuple[str, float]]
#: What a record must say; of all else there is a default.
_NEEDED = ("scenario", "mode", "n", "backend", "metric", "value", "unit")
_DEFAULTS = {"version": 1, "direction": "lower", "time": "", "run": "", "commit": "unknown", "environment": {}}
#: By what Record calls it: what JSON makes of it, and what to call that.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "int": ((int,), "a whole number"),
    "bool": ((bool,), "true or false"),
    "float | str": ((int, float, str), "a number or a text"),
    "dict[str, str]": ((dict,), "an object"),
}
_FIELDS = {each.name: _KINDS.get(str(each.type), ((str,), "a text")) for each in dataclasses.fields(Record)}
_OUTCOMES = ("pass", "fail", "inconclusive")


class BrokenSource(Exception):
    """A file that is there and cannot be read: which, where, and what to do."""

    def __init__(self, where: Path | str, why: str) -> None:
        super().__init__(f"{where}: {why}")


@dataclass(frozen=True)
class Night:
    when: str
    commit: str
    setting: str  # device and model: nights of different ones are not compared
    is_clean: bool
    records: tuple[Record, ...]


@dataclass(frozen=True)
class History:
    """series → (commit, value), oldest first; and all commits in that order."""

    series: dict[str, Points] = field(default_factory=dict)
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gate:
    verdict: str
    base: str
    head: str
    tiers: tuple[str, ...]
    findings: tuple[dict[str, Any], ...]
    advice: tuple[str, ...]


@dataclass
class Sources:
    records: list[Record] = field(default_factory=list)
    nights: list[Night] = field(default_factory=list)
    history: History = field(default_factory=History)
    gate: Gate | None = None
    #: A sentence for each file: what was read there, or that it is not there.
    told: list[str] = field(default_factory=list)


def read(files: Iterable[Path], asv: Path, nights: Path, gate: Path) -> Sources:
    found = Sources()
    for file in files:
        found.records += read_records(file, found.told)
    found.nights = read_nights(nights, found.told)
    found.history = read_history(asv, found.told)
    found.gate = read_gate(gate, found.told)
    return found


def read_records(file: Path, told: list[str]) -> list[Record]:
    if not file.exists():
        told.append(f"{shown(file)} is not there: no records")
        return []
    found, unfinished = [], 0
    for number, line in enumerate(_text(file).split("\n"), 1):
        where = f"{file}:{number}"
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            if line.startswith("{") and not line.endswith("}"):
                unfinished += 1
                continue
            raise BrokenSource(where, f"is no JSON: {error}; remove the line, or name another file") from None
        found.append(record_of(document, where))
    runs = len({each.run for each in found})
    cut = f"; {_count(unfinished, 'line')} of a writer that was killed passed over" if unfinished else ""
    told.append(f"{shown(file)}: {_count(len(found), 'record')} of {_count(runs, 'run')}{cut}")
    return found


def record_of(document: Any, where: str) -> Record:
    """By its schema: what it does not know is passed over, what it lacks has a default or is an error."""
    if not isinstance(document, dict):
        raise BrokenSource(where, "is no record: not a JSON object")
    missing = [name for name in _NEEDED if name not in document]
    if missing:
        raise BrokenSource(where, f"is no record: it has no {', '.join(missing)}")
    known = {name: each for name, each in document.items() if name in _FIELDS}
    for name, each in known.items():
        kinds, called = _FIELDS[name]
        if not isinstance(each, kinds) or (isinstance(each, bool) and bool not in kinds):
            raise BrokenSource(where, f"{name} is {each!r}, not {called}")
    if isinstance(known["value"], float) and not math.isfinite(known["value"]):
        raise BrokenSource(where, f"value is {known['value']}, which is no measurement")
    return Record(**{**_DEFAULTS, **known})


def read_nights(directory: Path, told: list[str]) -> list[Night]:
    """Every document with records below it, as bench.nightly keeps them; oldest first, and each night once."""
    if not directory.exists():
        told.append(f"{shown(directory)} is not there: no nights")
        return []
    files = [directory] if directory.is_file() else sorted(directory.rglob("*.json"))
    found: dict[tuple[str, str], Night] = {}
    for file in files:
        document = _json(file)
        if not isinstance(document, dict) or not isinstance(document.get("records"), list):
            raise BrokenSource(file, "is no night: it has no list of records")
        night = _night(document, file)
        found[night.when, night.commit] = night
    told.append(f"{shown(directory)}: {_count(len(found), 'night')}")
    return sorted(found.values(), key=lambda night: night.when)


def _night(document: dict[str, Any], file: Path) -> Night:
    when, commit = str(document.get("when", "")), str(document.get("commit", "unknown"))
    device, environment = document.get("device", ""), document.get("environment")
    named = device.values() if isinstance(device, dict) else [device]
    setting = ", ".join(str(each) for each in (*named, document.get("model")) if each)
    # What a record does not say of itself is the night's.
    shared = {"commit": commit, "time": when, "environment": environment or {}, "run": f"night {when}"}
    rows = [
        record_of({**shared, **each} if isinstance(each, dict) else each, f"{file}: record {number}")
        for number, each in enumerate(document["records"], 1)
    ]
    return Night(when, commit, setting, document.get("clean") is True, tuple(rows))


def read_history(directory: Path, told: list[str]) -> History:
    """asv's, without what it calls "n/a"."""
    if not directory.exists():
        told.append(f"{shown(directory)} is not there: no history")
        return History()
    dates: dict[str, float] = {}
    for file in directory.glob("*/*.json"):
        document = _json(file)
        if file.name == "machine.json":
            continue
        needed = ("commit_hash", "date", "result_columns", "results")
        missing = [name for name in needed if not isinstance(document, dict) or name not in document]
        if missing:
            raise BrokenSource(file, f"is no result of asv: it has no {', '.join(missing)}")
        dates[document["commit_hash"]] = document["date"]
    try:
        everything = history.read(directory)
    except (TypeError, ValueError, AttributeError) as error:
        raise BrokenSource(directory, f"holds what asv does not write: {error}") from None
    series = {
        name: [(commit, value) for commit, value in each if math.isfinite(value)] for name, each in everything.items()
    }
    series = {name: points for name, points in series.items() if points}
    told.append(f"{shown(directory)}: {len(series)} series over {_count(len(dates), 'commit')}")
    return History(series, tuple(sorted(dates, key=dates.__getitem__)))


def read_gate(file: Path, told: list[str]) -> Gate | None:
    if not file.exists():
        told.append(f"{shown(file)} is not there: no verdicts of the gate")
        return None
    document = _json(file)
    if not isinstance(document, dict) or document.get("verdict") not in _OUTCOMES:
        raise BrokenSource(file, "is no verdict of the gate: make it with python -m bench.gate --json FILE")
    findings = document.get("findings")
    if not isinstance(findings, list):
        raise BrokenSource(file, "is no verdict of the gate: it has no list of findings")
    for number, finding in enumerate(findings, 1):
        needed = ("tier", "scenario", "version", "metric", "outcome")
        missing = [name for name in needed if not isinstance(finding, dict) or name not in finding]
        if missing:
            raise BrokenSource(f"{file}: finding {number}", f"has no {', '.join(missing)}")
        if finding["outcome"] not in _OUTCOMES:
            raise BrokenSource(f"{file}: finding {number}", f"ends {finding['outcome']!r}, not {', '.join(_OUTCOMES)}")
    told.append(f"{shown(file)}: {_count(len(findings), 'finding')}, {document['verdict']}")
    labels = (str(document.get("base", "unknown")), str(document.get("head", "unknown")))
    tiers, advice = (tuple(map(str, document.get(name, []))) for name in ("tiers", "advice"))
    return Gate(document["verdict"], *labels, tiers, tuple(findings), advice)


def _json(file: Path) -> Any:
    text = _text(file)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BrokenSource(f"{file}:{error.lineno}", f"is no JSON: {error.msg}") from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BrokenSource(f"{file}:{line}", "is no text in UTF-8") from None
    except OSError as error:
        raise BrokenSource(file, f"cannot be read: {error.strerror or error}") from None


def shown(path: Path) -> str:
    """As a reader of the page may see it: below the checkout if it is there."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"

"""One night as a document: what was measured, on what, whether it was clean, and what changed since the last clean one.

`night.json` and every file of a history is one; whoever reads them reads `schema` first. Nothing is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from bench.gate.findings import Finding
from bench.records import Record

SCHEMA = 1
_COMMIT = 12


class NotANight(ValueError):
    """Why a document is none that can be compared with."""


@dataclass(frozen=True)
class Device:
    kind: str
    name: str = "unknown"


@dataclass(frozen=True)
class Night:
    """`why_not` is why it is not clean; `left_out` are parts that nobody wanted, `not_measured` parts and scenarios
    that somebody did; `said` are the last words of a part that failed; `compared_with` are nights, by scenario.
    """

    when: str
    commit: str
    device: Device
    model: str = "unknown"
    max_tokens: int = 64
    environment: Mapping[str, str] = field(default_factory=dict)
    why_not: Sequence[str] = ()
    left_out: Sequence[str] = ()
    not_measured: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    compared_with: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    records: Sequence[Record] = ()

    @property
    def is_clean(self) -> bool:
        return not self.why_not

    @property
    def setting(self) -> tuple[object, ...]:
        """What two nights must have in common before a figure of the one says anything about the other's."""
        return self.device, self.model, self.max_tokens

    @property
    def name(self) -> str:
        """Of its file: nights sort by it, and it holds nothing that an archive refuses."""
        return f"{self.when.replace(':', '')}-{self.short_commit}.json"

    @property
    def short_commit(self) -> str:
        return self.commit[:_COMMIT] + "+" * self.commit.endswith("+")

    @property
    def label(self) -> str:
        return f"{self.when[:10]} {self.when[11:16]} ({self.short_commit})"

    @property
    def scenarios(self) -> dict[str, int]:
        """id → version, of what has figures."""
        return {record.scenario: record.version for record in self.records}

    @property
    def changed(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome == "fail"]

    @property
    def exit_code(self) -> int:
        """A change before a doubt: 1; dirty or incomplete 2; clean and nothing worse 0."""
        return 1 if self.changed else 0 if self.is_clean else 2

    def json(self) -> bytes:
        document = {"schema": SCHEMA, "clean": self.is_clean, "changed": len(self.changed), **asdict(self)}
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    @classmethod
    def read(cls, content: bytes) -> Night:
        """Raises NotANight where it is cut off, of another schema, or something else altogether."""
        try:
            document = json.loads(content)
        except ValueError as error:
            raise NotANight(f"it is no JSON ({error})") from None
        if not isinstance(document, dict) or "schema" not in document:
            raise NotANight("it is no night's document")
        if document["schema"] != SCHEMA:
            raise NotANight(f"it has schema {document['schema']}, and this is {SCHEMA}")
        try:
            return cls._of(document)
        except (KeyError, TypeError, AttributeError) as error:
            raise NotANight(f"it lacks something: {error}") from None

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Night:
        found = {each.name: document[each.name] for each in fields(cls)}
        if not document["clean"] and not found["why_not"]:
            found["why_not"] = ["it was called dirty by hand"]
        found["device"] = Device(**found["device"])
        found["records"] = [Record(**record) for record in found["records"]]
        found["findings"] = [Finding(**finding) for finding in found["findings"]]
        return cls(**found)

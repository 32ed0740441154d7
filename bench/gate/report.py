"""What the gate says: a table for the terminal, Markdown for a pull request, JSON for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from bench.gate.findings import Finding, Value, verdict

HEADINGS = ("verdict", "tier", "scenario", "metric", "base", "head", "change", "")
_SYMBOLS = {"pass": "✅", "fail": "❌", "inconclusive": "❔"}
_ORDER = {"fail": 0, "inconclusive": 1, "pass": 2}


@dataclass(frozen=True)
class Report:
    base: str
    head: str
    tiers: Sequence[str]
    findings: Sequence[Finding]
    advice: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """A tier that found nothing was not run, whatever the others found."""
        found = {finding.tier for finding in self.findings}
        gated = [tier for tier in self.tiers if tier != "history"]
        return verdict(self.findings) if found >= set(gated) or verdict(self.findings) == "fail" else "inconclusive"

    def shown(self, is_all: bool) -> list[Finding]:
        chosen = [finding for finding in self.findings if is_all or finding.has_moved]
        return sorted(chosen, key=lambda finding: _ORDER[finding.outcome])

    def counts(self) -> Iterator[str]:
        for tier in self.tiers:
            outcomes = Counter(finding.outcome for finding in self.findings if finding.tier == tier)
            if tier != "history":
                told = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in _SYMBOLS if outcomes[outcome])
                yield f"{tier}: {told or 'nothing was measured'}"

    def terminal(self, is_all: bool = False) -> Iterator[str]:
        yield f"base {self.base}, head {self.head}"
        rows = [_row(finding) for finding in self.shown(is_all)]
        if rows:
            widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
            for row in [HEADINGS, *rows]:
                yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        else:
            yield "nothing has moved"
        yield from self.counts()
        yield from (f"history, advice only: {line}" for line in self.advice)
        yield self.verdict

    def markdown(self) -> str:
        lines = [f"### {_SYMBOLS[self.verdict]} {self.verdict}: {self.head} against {self.base}", ""]
        rows = [_row(finding) for finding in self.shown(False)]
        if rows:
            lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
            lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        else:
            lines.append("Nothing has moved.")
        lines += ["", *(f"- {line}" for line in self.counts())]
        lines += [f"- history, advice only: {line}" for line in self.advice]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        document = {
            "verdict": self.verdict,
            "base": self.base,
            "head": self.head,
            "tiers": list(self.tiers),
            "findings": [asdict(finding) for finding in self.findings],
            "advice": list(self.advice),
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _row(finding: Finding) -> tuple[str, ...]:
    values = (_told(finding.base, finding.unit), _told(finding.head, finding.unit))
    return (finding.outcome, finding.tier, finding.scenario, finding.metric, *values, finding.change, finding.why)


def _told(value: Value | None, unit: str) -> str:
    if value is None:
        return "–"
    number = value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return f"{number} {unit}".rstrip()

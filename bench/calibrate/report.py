"""What was found, in words and in one table; and the same for programs, as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.calibrate.fit import Estimate, Fit
from bench.calibrate.predict import AS_QUICK, Row
from bench.calibrate.verify import Observed
from bench.scenarios import SIZES
from rewardcore import Endpoint

#: Growth and spread below these make no difference that anybody would notice.
_NO_GROWTH, _NO_SPREAD = 1e-4, 0.01


@dataclass(frozen=True)
class Report:
    endpoint: Endpoint
    fit: Fit
    rows: list[Row]
    recommended: Row
    observed: list[Observed]

    def lines(self) -> Iterator[str]:
        yield from self._beliefs()
        yield from self._levels()
        yield from self._predictions()
        yield from self._observations()

    def _beliefs(self) -> Iterator[str]:
        fit, counts = self.fit, self.fit.counts
        yield f"── what {self.endpoint.model!r} at {self.endpoint.base_url} is like"
        yield (
            f"from {sum(counts.values())} requests: {counts['replied']} replies, {counts['refused']} refused, "
            f"{counts['failed']} failed, the first contact apart; in brackets, where nine of ten resamples of them lie"
        )
        for what, says in self._sentences():
            yield f"{what:15} {says}"
        for doubt in fit.doubts:
            yield f"{'cannot tell':15} {doubt}"

    def _sentences(self) -> Iterator[tuple[str, str]]:
        fit, profile = self.fit, self.fit.profile
        yield "alone", f"{_seconds(fit.alone)} a reply, half of them sooner"
        if fit.tokens is not None:
            each = fit.tokens.seconds
            base = max(0.0, fit.alone.value - each.value * fit.tokens.typical)
            yield (
                "of which",
                f"{_milliseconds(each)} for each of about {fit.tokens.typical:.0f} tokens, "
                f"and {base:.3g} s before the first",
            )
        if fit.growth.value < _NO_GROWTH:
            yield "under load", f"no slower, up to {fit.highest} at once"
        else:
            low, high = (f"{100 * each:.2g}" for each in fit.growth[1:])
            beyond = "" if fit.doubled <= fit.highest else ", if it goes on like that"
            yield (
                "under load",
                f"{100 * fit.growth.value:.2g} % slower for each other request ({low} to {high}): "
                f"twice as slow at {fit.doubled:.0f} at once{beyond}",
            )
        if fit.spread.value < _NO_SPREAD:
            yield "spread", "none to speak of"
        else:
            low, high = (f"{each:.2g}" for each in fit.spread[1:])
            yield (
                "spread",
                f"log-normal, {fit.spread.value:.2g} ({low} to {high}): two thirds of the replies within a factor of "
                f"{math.exp(fit.spread.value):.2f}",
            )
        if profile.straggler_fraction:
            yield (
                "stragglers",
                f"{profile.straggler_fraction:.1%} of the replies, {profile.straggler_factor:.1f} times as slow",
            )
        if profile.error_fraction:
            yield "failures", f"{profile.error_fraction:.1%} of the requests, refusals apart"
        if fit.limit is not None:
            value = f"{fit.limit.value:.0f}" if fit.limit.kind == "at once" else f"{fit.limit.value:.3g}"
            yield "limit", f"{value} {fit.limit.kind}; the others are refused ({fit.limit.refused} were)"

    def _levels(self) -> Iterator[str]:
        yield ""
        yield "── measured, and what the model makes of it (seconds a reply, in the mean)"
        rows = [
            (
                str(level.at_once),
                f"{level.in_flight:.1f}",
                str(level.replies),
                f"{level.measured:.3g} ± {level.error:.1g}",
                f"{level.modelled:.3g}",
                f"{level.off:+.0%}",
            )
            for level in self.fit.levels
        ]
        yield from _table(("asked at once", "in flight", "replies", "measured", "model", "off"), rows)

    def _predictions(self) -> Iterator[str]:
        yield ""
        yield "── predicted makespans: the real engine against that model, in virtual time"
        rows, is_extrapolated = [], False
        for row in self.rows:
            beyond = row.peak_in_flight > self.fit.highest
            is_extrapolated |= beyond
            mark = " *" if beyond else " ←" if row is self.recommended else ""
            at_once = f"{row.at_once}" if row.mode != "process" else f"{row.at_once} workers"
            rows.append((row.mode, at_once, *(_makespan(row.makespans[n]) for n in SIZES), mark))
        yield from _table(("mode", "at once", *(f"{n} samples" for n in SIZES), ""), rows)
        if is_extrapolated:
            yield f"* more at once than the {self.fit.highest} that were probed: a guess; --max-concurrent probes more"
        best = self.recommended
        seconds = ", ".join(f"{n} in {_makespan(best.makespans[n])}" for n in SIZES)
        yield ""
        yield f"recommended: {best.mode} with {best.at_once} at once: {seconds}"
        yield f"  the fewest at once of those that take at most {AS_QUICK - 1:.0%} longer than the quickest of them"
        if best.at_once == max((row.at_once for row in self.rows if isinstance(row.at_once, int)), default=None):
            yield "  it is the highest that was probed: more may be quicker; --max-concurrent probes more"

    def _observations(self) -> Iterator[str]:
        if not self.observed:
            return
        yield ""
        yield "── predicted and observed"
        rows = [
            (
                str(each.n),
                _makespan(each.predicted),
                "–" if each.seconds is None else _makespan(each.seconds),
                "–" if each.off is None else f"{each.off:+.1%}",
                each.why,
            )
            for each in self.observed
        ]
        yield from _table(("samples", "predicted", "observed", "off", ""), rows)

    def document(self) -> dict[str, Any]:
        fit = self.fit
        return {
            "base_url": self.endpoint.base_url,
            "model": self.endpoint.model,
            "profile": asdict(fit.profile),
            "alone": fit.alone._asdict(),
            "growth": fit.growth._asdict(),
            "spread": fit.spread._asdict(),
            "seconds_per_token": None if fit.tokens is None else fit.tokens.seconds._asdict(),
            "limit": None if fit.limit is None else fit.limit._asdict(),
            "levels": [level._asdict() | {"off": level.off} for level in fit.levels],
            "counts": dict(fit.counts),
            "cannot_tell": list(fit.doubts),
            "predicted": [asdict(row) for row in self.rows],
            "recommended": asdict(self.recommended),
            "observed": [asdict(each) | {"off": each.off} for each in self.observed],
        }


def _seconds(estimate: Estimate) -> str:
    return f"{estimate.value:.3g} s ({estimate.low:.3g} to {estimate.high:.3g})"


def _milliseconds(estimate: Estimate) -> str:
    value, low, high = estimate.scaled(1000)
    return f"{value:.3g} ms ({low:.3g} to {high:.3g})"


def _makespan(seconds: float | None) -> str:
    """In seconds; None is past what the harness waits."""
    if seconds is None:
        return "> 10,000 s"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in [headings, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        yield "   ".join([*cells, row[-1].rjust(widths[-1]) if headings[-1] else row[-1]]).rstrip()

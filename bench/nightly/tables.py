"""What a night has measured, as Markdown: modes, batch sizes, memory, the engine. From records; compares nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.figures import MEMORY
from bench.gate.findings import Value
from bench.nightly.engine_memory import FIGURES as ENGINE
from bench.nightly.night import Night
from bench.nightly.series import Series, series_of
from bench.scenarios import BATCH_SIZES, GRID, NIGHTLY_ENGINE, OFFLINE, SELF

NOTHING = "–"
Figures = Mapping[str, Series]
#: By device: what a batch took, as its records call it, and what that is.
PEAKS = {
    "cpu": ("counted peak", "the weights, and every storage that a batch of the longest prompts allocates"),
    "cuda": (
        "CUDA peak allocated",
        "the most that torch had allocated, without the CUDA context",
    ),
}


def sections(night: Night) -> Iterator[str]:
    found = series_of(night.records)
    titles = {
        "Modes compared, at a vLLM server of this night": ("http", _modes(found)),
        "The self mode by batch size, with torch": ("torch", _batch_sizes(found, night.device.kind)),
        "Memory by batch size, predicted and measured": ("torch", _memory(found, *PEAKS[night.device.kind])),
        "vLLM's offline engine": ("vllm", _engine(found)),
    }
    for title, (part, lines) in titles.items():
        why = "left out on purpose" if part in night.left_out else night.not_measured.get(part, "nothing was told")
        yield from [f"## {title}", "", *(lines or [f"Not measured: {why}."]), ""]


def _modes(found: Mapping[str, Figures]) -> list[str]:
    rows = [
        (
            str(scenario.n),
            scenario.mode,
            told(_value(figures, "makespan")),
            *_beside(figures, "sync"),
            _verdicts(figures),
            told(_value(figures, "requests")),
            told(_value(figures, "tokens a second")),
            _latency(figures),
        )
        for scenario in GRID
        if scenario.backend == "vllm" and (figures := found.get(scenario.id))
    ]
    headings = ("n", "mode", "seconds", "speed-up", "scores equal to sync's")
    remark = (
        "Seconds are the mean of the rounds, in which the modes take turns on the same samples; verdicts, requests and"
        " latency are of all rounds. A speed-up stands beside its agreement, and is not given where a mode did not get"
        " every reply."
    )
    return [*table((*headings, "verdicts", "requests", "tokens/s", "latency"), rows), "", remark] if rows else []


def _batch_sizes(found: Mapping[str, Figures], device: str) -> list[str]:
    rows = [
        (
            str(scenario.n),
            str(scenario.batch_size),
            told(_value(figures, "samples a second")),
            told(_value(figures, "tokens a second")),
            *_beside(figures, "batch size 1"),
            told(_value(figures, "requests")),
            _verdicts(figures),
        )
        for scenario in SELF
        if "samples a second" in (figures := found.get(scenario.id, {}))
    ]
    remark = "Over all rounds" + (", by the CPU time of the one thread." if device == "cpu" else ".")
    if (padding := _value(found.get(MEMORY.id, {}), "padding")) is not None:
        remark += f" Of what batches of 8 compute for 1024 samples, {padding:.1%} is padding."
    headings = ("n", "batch", "samples/s", "tokens/s", "speed-up", "scores equal to batch 1's", "calls", "verdicts")
    return [*table(headings, rows), "", remark] if rows else []


def _memory(found: Mapping[str, Figures], measured: str, meaning: str) -> list[str]:
    figures = found.get(MEMORY.id, {})
    headings = ["batch", "predicted peak", "measured peak", "measured / predicted"]
    headings += ["reserved", "tokens/s"] if "CUDA peak reserved, batch 1" in figures else []
    rows = [
        (
            str(size),
            told(_value(figures, predicted), "bytes"),
            told(_peak(figures, f"{measured}, batch {size}") or "does not fit", "bytes"),
            told(_middle(figures, f"measured over predicted, batch {size}")),
            told(_middle(figures, f"CUDA peak reserved, batch {size}"), "bytes"),
            told(_middle(figures, f"tokens a second, batch {size}")),
        )[: len(headings)]
        for size in BATCH_SIZES
        if (predicted := f"predicted peak, batch {size}") in figures
    ]
    lines = [
        f"{word} {told(_peak(figures, f'{metric}, intercept'), 'bytes')} and"
        f" {told(_middle(figures, f'{metric}, slope'), 'bytes')} more for each sample"
        for word, metric in (("predicted", "predicted peak"), ("measured", measured))
    ]
    return [*table(headings, rows), "", f"As a line, {'; '.join(lines)}. Measured: {meaning}."] if rows else []


def _peak(figures: Figures, metric: str) -> float | None:
    """With the weights, which are not in what is counted."""
    weights = _value(figures, "weights") if metric.startswith(PEAKS["cpu"][0]) else 0.0
    peak = _middle(figures, metric)
    return None if peak is None or weights is None else float(peak) + weights


def _engine(found: Mapping[str, Figures]) -> list[str]:
    rows = [
        (
            str(scenario.n),
            told(_value(figures, "samples a second")),
            told(_value(figures, "tokens a second")),
            _verdicts(figures),
        )
        for scenario in OFFLINE
        if (figures := found.get(scenario.id))
    ]
    aside = found.get(NIGHTLY_ENGINE.id, {})
    parts = [f"{metric} {told(_value(aside, metric), 'bytes')}" for metric in ENGINE if metric in aside]
    if "KV blocks" in aside:
        blocks, each = _value(aside, "KV blocks"), _value(aside, "tokens a KV block")
        parts.append(f"{told(blocks)} KV blocks of {told(each)} tokens")
    remark = f"All samples in one call, over all rounds. vLLM sets aside: {', '.join(parts) or 'nothing that it tells'}"
    untold = [metric for metric in ENGINE if metric not in aside]
    remark += f"; its worker here does not tell: {', '.join(untold)}." if untold else "."
    return [*table(("n", "samples/s", "tokens/s", "verdicts"), rows), "", remark] if rows or aside else []


def told(value: Value | None, unit: str = "") -> str:
    """A figure as a person reads it."""
    if value is None or isinstance(value, str):
        return value or NOTHING
    if unit.startswith("bytes"):
        size, name = (value / 2**30, "GiB") if abs(value) >= 2**30 else (value / 2**20, "MiB")
        return f"{size:,.2f} {name}{unit.removeprefix('bytes')}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{number} {unit}".rstrip()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(headings), "|" + "---|" * len(headings), *map(line, rows)]


def _beside(figures: Figures, baseline: str) -> tuple[str, str]:
    """A speed-up, and the agreement without which there is none."""
    speed_up, agreement = _value(figures, f"speed-up over {baseline}"), _value(figures, f"scores equal to {baseline}'s")
    difference = _value(figures, f"mean difference to {baseline}'s scores")
    if agreement is None or difference is None:
        return NOTHING, NOTHING
    return NOTHING if speed_up is None else f"{speed_up:.1f} ×", f"{agreement:.0%}, ±{difference:.2f}"


def _middle(figures: Figures, metric: str) -> Value | None:
    return figures[metric].middle if metric in figures else None


def _value(figures: Figures, metric: str) -> float | None:
    """What was said of all rounds together."""
    value = figures[metric].value if metric in figures else None
    return None if isinstance(value, str) else value


def _latency(figures: Figures) -> str:
    metric = next((metric for metric in figures if metric.startswith("latency ")), "")
    return f"{metric.removeprefix('latency ')} {told(_value(figures, metric))} s" if metric else NOTHING


def _verdicts(figures: Figures) -> str:
    ended = {metric.removeprefix("verdicts "): metric for metric in figures if metric.startswith("verdicts ")}
    return ", ".join(f"{told(_value(figures, metric))} {status}" for status, metric in ended.items()) or NOTHING

"""`rewardcore memory`: the predicted peak per batch size as a table and a plot, and the largest batch that fits.

A rule by card alone ("below 8 GB 2, to 16 GB 4, to 32 GB 8, above 16") does not hold: model and lengths decide.
Predicted for Qwen2.5 in bfloat16, 1024 + 256 tokens, on 8 / 16 / 24 / 80 GiB: 0.5B 131 / 283 / 434 / 1492,
3B 12 / 75 / 137 / 574, 7B 0 / 1 / 38 / 301, 14B 0 / 0 / 0 / 144.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .arguments import Arguments
from .measured import Measured, check_gpu_is_ours, measure
from .model_config import load_config, load_model
from .predicted import FOLLOWED, RESERVE, Curve, Peak, fit, predict, recommend_batch_size
from .release import is_out_of_memory

_CARDS = tuple(size * 2**30 for size in (8, 16, 24, 32, 48, 80))


def run_memory(
    arguments: Arguments,
    echo: Callable[[str], object] = print,
    progress: Callable[[str], object] = lambda line: None,
) -> list[Peak]:
    """Predict and print; measure and print each batch size as it is measured; plot. Returns the predicted peaks."""
    directory, gpus, trusted = arguments.directory, arguments.tensor_parallel, arguments.trust_remote_code
    lengths = (arguments.prompt_tokens, arguments.new_tokens)
    config = load_config(directory, trusted)
    arguments.check_model(config.get_text_config().to_dict())
    data_type = _data_type(arguments.dtype, config)

    def tell(size: int) -> None:
        progress(f"predicting batch size {size} …")

    progress(f"building {config.model_type} of fake tensors …")
    peaks = predict(
        config, arguments.batch_sizes, *lengths, data_type,
        tell=tell, tensor_parallel=gpus, trust_remote_code=trusted,
    )  # fmt: skip
    capacity = arguments.device_memory
    if torch.cuda.is_available():
        capacity = capacity or torch.cuda.get_device_properties(0).total_memory
    title = f"{directory.resolve().name}, {str(data_type).removeprefix('torch.')}, {lengths[0]} + {lengths[1]} tokens"
    notes = [
        "a row is its fullest moment: at the prefill the KV cache holds the prompts, at the last token also the replies"
    ]
    notes.append(f"predicted with the code of {FOLLOWED}; other versions may take other memory")
    if gpus > 1:
        title += f", per GPU of {gpus}"
        notes.append(
            "divided as vLLM does: matrices, and the KV cache by whole heads; norms, biases and activations are taken"
            " whole, so the peak is an upper bound"
        )
    for line in (*_table(title, peaks), *notes, "", *_advice(fit(peaks), peaks[0].weights, capacity)):
        echo(line)
    measured: list[Measured] = []
    if arguments.measure:
        check_gpu_is_ours()
        progress("measuring on the GPU …")
        measured = _measured(arguments, peaks, data_type, echo)
    if arguments.plot is not None:
        _plot(arguments.plot, title, peaks, measured, capacity)
        echo(f"plot: {arguments.plot}")
    return peaks


def format_bytes(size: float) -> str:
    unit, name = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
    return f"{size / unit:.1f} {name}"


def _unit(peaks: Sequence[Peak]) -> tuple[int, str, int]:
    """One unit for a whole table or plot, and its decimals."""
    return (2**30, "GiB", 2) if peaks[-1].total >= 8 * 2**30 else (2**20, "MiB", 0)


def _measured(
    arguments: Arguments, peaks: Sequence[Peak], data_type: torch.dtype, echo: Callable[[str], object]
) -> list[Measured]:
    """Each as soon as it is there: whatever ends the measuring, those before it are told."""
    unit, name, digits = _unit(peaks)
    headings = ("batch", "predicted peak", "measured peak", "reserved", "tokens/s")
    found: list[Measured] = []

    def row(*cells: str) -> str:
        return "  ".join(cell.rjust(len(heading)) for cell, heading in zip(cells, headings, strict=False))

    for line in ("", f"measured on {torch.cuda.get_device_name(0)}, in {name}", "", row(*headings)):
        echo(line)
    try:
        model = load_model(arguments.directory, data_type, arguments.trust_remote_code).to("cuda").eval()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        echo("the weights do not fit")
        return found
    sizes = [peak.batch_size for peak in peaks]
    for seen, peak in zip(measure(model, sizes, arguments.prompt_tokens, arguments.new_tokens), peaks, strict=False):
        found.append(seen)
        cells = [f"{size / unit:,.{digits}f}" for size in (peak.total, seen.allocated, seen.reserved)]
        echo(row(str(seen.batch_size), *cells, f"{seen.tokens_per_second:,.0f}"))
    if missing := peaks[len(found) :]:
        echo(row(str(missing[0].batch_size), f"{missing[0].total / unit:,.{digits}f}", "does not fit"))
    return found


def _table(title: str, peaks: Sequence[Peak]) -> list[str]:
    unit, name, digits = _unit(peaks)
    rows = [["batch", "weights", "KV at peak", "activations", "predicted peak", "peak at"]]
    for peak in peaks:
        sizes = (peak.weights, peak.kv_cache, peak.activations, peak.total)
        rows.append([str(peak.batch_size), *(f"{size / unit:,.{digits}f}" for size in sizes), peak.moment])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [f"{title}, in {name}", "", *lines]


def _advice(curve: Curve, weights: int, capacity: int | None) -> list[str]:
    lines = [f"predicted: {format_bytes(curve.intercept)} and {format_bytes(curve.slope)} more for each sample"]
    for memory in _CARDS if capacity is None else [capacity]:
        size = recommend_batch_size(curve, memory)
        needed = curve.intercept + curve.slope
        advice = f"batch size {size} at most" if size else (
            f"does not fit: the weights take {format_bytes(weights)}, one sample {format_bytes(needed - weights)} more;"
            f" {format_bytes(needed - memory * (1 - RESERVE))} are missing"
        )  # fmt: skip
        lines.append(f"{format_bytes(memory)} ({RESERVE:.0%} kept free): {advice}")
    return lines


def _plot(path: Path, title: str, peaks: Sequence[Peak], measured: Sequence[Measured], capacity: int | None) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    unit, name, digits = _unit(peaks)
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(peaks))
    floor = [0.0] * len(peaks)
    for part, colour in (("weights", "#b8c4d0"), ("kv_cache", "#2a9d8f"), ("activations", "#e9973e")):
        heights = [getattr(peak, part) / unit for peak in peaks]
        bars = axes.bar(
            places, heights, 0.62, floor, color=colour, label=part.replace("kv_cache", "KV cache at the peak")
        )
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    axes.bar_label(bars, [f"{peak.total / unit:,.{digits}f}" for peak in peaks], padding=4, size=9)
    if measured:
        axes.plot(
            range(len(measured)), [seen.allocated / unit for seen in measured], "o", color="#1d3557", label="measured"
        )
    if capacity is not None and capacity < 4 * peaks[-1].total:
        axes.axhline(capacity / unit, color="#c1121f", linewidth=1.2, linestyle=(0, (5, 3)))
        axes.annotate(
            f"{format_bytes(capacity)} on the device", (0, capacity / unit), (6, 4), color="#c1121f", size=9,
            xycoords=("axes fraction", "data"), textcoords="offset points", va="bottom",
        )  # fmt: skip
    axes.set_xticks(places, [str(peak.batch_size) for peak in peaks])
    axes.set(xlabel="batch size", ylabel=f"predicted peak memory, {name}")
    axes.set_title(title, loc="left", size=11, pad=34)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4, frameon=False, fontsize=9, handlelength=1)
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb")
    axes.set_axisbelow(True)
    FigureCanvasAgg(figure).print_figure(path, dpi=160, metadata={"Software": None})


def _data_type(name: str, config: Any) -> torch.dtype:
    found = config.get_text_config().dtype if name == "auto" else getattr(torch, name)
    return found if isinstance(found, torch.dtype) else torch.bfloat16

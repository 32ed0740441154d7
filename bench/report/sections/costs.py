"""What it costs: memory by batch size, and the client's CPU beside other clients."""

from __future__ import annotations

from bench.report import commands
from bench.report.newest import Newest
from bench.report.page import Figure, Key, Panel, Section
from bench.report.plots import memory as memory_plots
from bench.report.plots import peers as peers_plots
from bench.report.table import provenance
from bench.report.tables import memory, peers


def memory_by_batch_size(newest: Newest) -> Section:
    table = memory.by_batch_size(newest)
    about = (
        "What a batch of the self mode takes, by its size: predicted without a GPU, and measured where there is one."
    )
    if not table:
        sentence = "Memory by batch size is not measured yet, which needs torch:"
        return Section("memory", "Memory", about, missing=[(sentence, commands.SELF)])
    line, has_gpu = memory.line(newest), any(row["kind"].startswith("CUDA") for row in table.rows)
    curve = f" The predicted curve is {line}." if line else ""
    predicted = {row["kind"] for row in table.rows if row["is_predicted"]}
    figure = Figure(
        "memory-by-batch-size",
        "Peak by batch size",
        "The longest prompts of the benchmarks' samples, weights included. Predicted: the model run with fake tensors,"
        f" every storage counted, exact; CPU: the same of a real batch; CUDA: what its allocator says.{curve}",
        [Panel(memory_plots.by_batch_size(table))],
        [("Memory by batch size", memory.side_by_side(table))],
        [
            Key("hollow" if kind in predicted else "circle", name, kind)
            for kind, name in memory_plots.kinds_of(table).items()
        ],
        provenance(table.records),
        layout="beside",
        is_open=True,
    )
    missing = [] if has_gpu else [("No GPU has measured it yet; a night does:", commands.NIGHT)]
    return Section("memory", "Memory", about, [figure], missing)


def peers_beside(newest: Newest) -> Section:
    figures: list[Figure] = []
    cpu, start = peers.cpu(newest), peers.start(newest)
    ours = [Key("circle", "asyncio", "rewardcore"), Key("circle", "quiet", "other clients")]
    if cpu:
        figures.append(
            Figure(
                "peers-cpu",
                "CPU a sample",
                "The same requests to the same server, 60 at once and without latency, every client warm and in a"
                " process of its own; medians of the ratios within a round. Bare aiohttp builds and reads nothing.",
                [Panel(peers_plots.cpu(cpu))],
                [("CPU a sample", cpu)],
                ours,
                provenance(cpu.records),
            )
        )
    if start:
        figures.append(
            Figure(
                "peers-start",
                "A new process, until its second batch",
                "CPU seconds of a new process, from strong to pale: its import, a first batch of 16 with opening and"
                " connecting, a second batch.",
                [Panel(peers_plots.start(start))],
                [("Cold start", start)],
                [Key("bar", "asyncio", "rewardcore"), Key("bar", "quiet", "other clients")],
                provenance(start.records),
            )
        )
    missing = [] if cpu and start else [("Other clients are not all measured yet:", commands.PEERS)]
    about = "Other clients on the same work in the same run: what judging costs the process that asks."
    return Section("peers", "Peers", about, figures, missing)

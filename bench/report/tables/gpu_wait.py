"""What the GPUs wait for the judge: in a trainer's step, as the source documents claim, and in a thread beside it."""

from __future__ import annotations

from bench import main_thread
from bench.records import Record
from bench.report.newest import Newest
from bench.report.table import Row, Table
from bench.scenarios import CLAIMED_WAITS, REGISTRY
from bench.training_step import SHAPES


def steps(newest: Newest) -> Table:
    found = {name: newest.get(name, "GPU wait") for name in SHAPES}
    used = {name: each for name, each in found.items() if each is not None}
    rows = [
        {"shape": SHAPES[name].about, "mode": each.mode, "seconds": float(each.value)} for name, each in used.items()
    ]
    return Table({"shape": "the trainer's shape", "seconds": "GPU wait, virtual s"}, rows, [*used.values()])


def claimed(newest: Newest) -> Table:
    """The documents' setting: 100 × 0.7 s while the caller computes."""
    rows: list[Row] = []
    used: list[Record] = []
    for id, seconds in CLAIMED_WAITS.items():
        found = newest.get(id, "caller blocked")
        if found is not None:
            used.append(found)
            compute = REGISTRY[id].compute
            rows.append({"mode": found.mode, "compute": compute, "seconds": float(found.value), "claimed": seconds})
    columns = {"mode": "mode", "compute": "the caller computes, s", "claimed": "claimed wait, s"}
    return Table({**columns, "seconds": "here, virtual s"}, rows, used)


def beside(newest: Newest) -> Table:
    """How much of its speed a busy main thread loses, and how much the control differed from itself."""
    rows: list[Row] = []
    used: list[Record] = []
    id = main_thread.SCENARIO.id
    for load in main_thread.LOADS:
        for background in main_thread.BACKGROUNDS:
            name = f"{load} beside {background}"
            lost, noise = newest.get(id, f"{name}: speed lost"), newest.get(id, f"{name}: noise of the control")
            if lost is None or noise is None:
                continue
            used += [lost, noise]
            efficiency = newest.value(id, f"{name}: efficiency")
            rows.append(
                {
                    "load": load,
                    "background": background,
                    "mode": "asyncio" if background == "thread" else "asyncio-child",
                    "lost": 100 * float(lost.value),
                    "noise": 100 * float(noise.value),
                    "efficiency": None if efficiency is None else 100 * efficiency,
                }
            )
    columns = {"load": "it runs", "background": "judging in a", "lost": "lost, %", "noise": "noise, %"}
    return Table({**columns, "efficiency": "judging, % of ideal"}, rows, used)

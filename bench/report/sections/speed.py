"""How fast: speed-ups beside their ideals and claims, how many at once, and what the GPUs wait."""

from __future__ import annotations

from collections.abc import Iterable

from bench import main_thread
from bench.profiles import report as profiles
from bench.profiles.drive import BATCHES, SIZE
from bench.report import commands
from bench.report.computed import KNEE, Endpoints, knee_of
from bench.report.newest import Newest
from bench.report.page import Figure, Key, Panel, Section
from bench.report.palette import SHAPES, known
from bench.report.plots import concurrency as concurrency_plots
from bench.report.plots import gpu_wait as gpu_wait_plots
from bench.report.plots import speed_up as speed_up_plots
from bench.report.table import Table, provenance
from bench.report.tables import concurrency as concurrency_tables
from bench.report.tables import gpu_wait as gpu_wait_tables
from bench.report.tables import speed_up as speed_up_tables
from bench.scenarios import FULL_LATENCY, REGISTRY, SCALED_LATENCY

IDEAL = Key("dashed", "ink", "ideal")
CLAIMED = Key("hollow", "ink", "claimed by the source documents")
_NAMES = {
    "sync": "sync: one after another",
    "asyncio-httpx": "asyncio, over httpx",
    "asyncio-child": "asyncio, in a child",
}
_SWEPT = [Key("circle", "asyncio", "a fixed limit"), Key("line", "ink", "auto"), Key("dashed", "ink", "knee")]
_PLAYED = f"{BATCHES} batches of {SIZE:,} samples"


def modes(table: Table) -> Iterable[Key]:
    present = sorted({row["mode"] for row in table.rows}, key=speed_up_tables.rank)
    return [Key(SHAPES[known(mode)], known(mode), _NAMES.get(mode, mode)) for mode in present]


def speed_up(newest: Newest) -> Section:
    figures: list[Figure] = []
    missing: list[tuple[str, str]] = []
    if claims := speed_up_tables.claims(newest):
        figures.append(
            Figure(
                "claims",
                "What the source documents claim, and what is here",
                "Each claim in its own setting, run again: seconds, or calls of a model, over those of its baseline."
                " Seconds are virtual: the real code on a clock that jumps, exact on any machine.",
                [Panel(speed_up_plots.claims(claims))],
                [("Claims", claims)],
                [Key("circle", "asyncio", "here"), CLAIMED, Key("tick", "ink", "ideal")],
                provenance(claims.records),
            )
        )
    if virtual := speed_up_tables.by_size(newest, "respx"):
        at_once = REGISTRY["respx/asyncio-httpx/1024"].max_concurrent
        figures.append(
            Figure(
                "speed-up-virtual",
                f"By size, {FULL_LATENCY.latency:g} s a call",
                f"The real code over httpx in virtual time, exact; {at_once} at once, so the ideal is whole waves of"
                f" {at_once}.",
                [Panel(speed_up_plots.by_size(virtual, speed_up_tables.claimed_by_size(), is_labelled=True))],
                [("Speed-up by size, virtual time", virtual)],
                [*modes(virtual), IDEAL, CLAIMED],
                provenance(virtual.records),
            )
        )
    else:
        missing.append(("Claims and speed-ups in virtual time are not measured yet:", commands.VIRTUAL))
    if sockets := speed_up_tables.by_size(newest, "loopback"):
        figures.append(
            Figure(
                "speed-up-sockets",
                f"By size, over sockets, {1000 * SCALED_LATENCY.latency:g} ms a call",
                "Real time, to a simulated server that shares the machine: a hundredth of the latency, so that what a"
                " client costs shows, and so do the neighbours.",
                [Panel(speed_up_plots.by_size(sockets))],
                [("Speed-up by size, over sockets", sockets)],
                [*modes(sockets), IDEAL],
                provenance(sockets.records),
            )
        )
    else:
        missing.append(("Speed-ups over real sockets are not measured yet:", commands.SOCKETS))
    for place, (name, real) in enumerate(speed_up_tables.at_endpoints(newest).items()):
        figures.append(
            Figure(
                f"speed-up-endpoint-{place}",
                f"By size, at {name}",
                "A real endpoint, asked in rounds in which the modes take turns; its own load and limits are in it.",
                [Panel(speed_up_plots.by_size(real))],
                [(f"Speed-up by size, {name}", real)],
                [*modes(real)],
                provenance(real.records),
            )
        )
    if batches := speed_up_tables.by_batch_size(newest):
        figures.append(
            Figure(
                "speed-up-self",
                "The self mode, by batch size",
                "A local model judges in batches: time at batch size 1 over time at each batch size, on a real clock.",
                [Panel(speed_up_plots.by_batch_size(batches))],
                [("Speed-up by batch size", batches)],
                [Key(shape, "self", f"{n:,} samples") for n, shape in speed_up_plots.sizes_of(batches).items()],
                provenance(batches.records),
            )
        )
    else:
        missing.append(("The self mode's batches are not measured yet:", commands.SELF))
    about = "Judging is waiting, and what counts is how much of it happens at once."
    return Section("speed-up", "Speed-up", about, figures, missing)


def concurrency(newest: Newest, endpoints: Endpoints) -> Section:
    figures: list[Figure] = []
    missing: list[tuple[str, str]] = []
    if endpoints.sweeps:
        tables = [(sweep.profile.about, concurrency_tables.sweep(sweep)) for sweep in endpoints.sweeps]
        figures.append(
            Figure(
                "sweep",
                "How many at once: three endpoints, and their knees",
                f"Samples a second over {_PLAYED} with each fixed limit, in virtual time, exact. The knee is the"
                f" smallest limit that reaches {100 * KNEE:.0f} % of the best; auto is not told where it is.",
                [
                    Panel(concurrency_plots.sweep(table, sweep.knee), sweep.profile.about)
                    for sweep, (_, table) in zip(endpoints.sweeps, tables, strict=True)
                ],
                tables,
                _SWEPT,
                endpoints.provenance,
                layout="wide",
            )
        )
    if own := concurrency_tables.own_sweeps(newest):
        figures.append(
            Figure(
                "sweep-own",
                "How many at once, at your endpoints",
                "Samples a second with each limit, in rounds in which all take their turn; the median of the rounds."
                f" The knee is the smallest limit that reaches {100 * KNEE:.0f} % of the best; where the highest one is"
                " the first to, there is none yet, and higher limits may judge more.",
                [
                    Panel(concurrency_plots.sweep(table, knee_of(concurrency_tables.fixed(table))), name)
                    for name, table in own.items()
                ],
                list(own.items()),
                _SWEPT,
                provenance([record for table in own.values() for record in table.records]),
                layout="wide",
            )
        )
    else:
        missing.append(("No endpoint of yours has been swept yet:", commands.SWEEP))
    if endpoints.watched:
        seen = [(profile, played, concurrency_tables.watched(profile, played)) for profile, played in endpoints.watched]
        figures.append(
            Figure(
                "limit",
                "What auto allows as time goes on",
                f"{_PLAYED} from a cold start, in virtual time, exact; a thin line ends each batch.",
                [
                    Panel(
                        concurrency_plots.watched(
                            table, concurrency_tables.refusals(played), concurrency_tables.ends(played)
                        ),
                        profile.about,
                    )
                    for profile, played, table in seen
                ],
                [(profile.about, concurrency_tables.sparse(table)) for profile, _, table in seen],
                [
                    Key("area", "asyncio", "in flight"),
                    Key("line", "asyncio", "allowed at once"),
                    Key("dashed", "ink", "what the endpoint bears"),
                    Key("cross", "bad", "refused"),
                ],
                endpoints.provenance,
                layout="wide",
            )
        )
    else:
        missing.append(("Sweeps and limits over time are computed unless --only-read is given:", commands.REPORT))
    if best := concurrency_tables.of_the_best(newest):
        figures.append(
            Figure(
                "auto",
                "auto beside the best fixed limit, at endpoints of every temper",
                f"{_PLAYED} in virtual time, exact: the best fixed limit's time over auto's. The gates ask for"
                f" {100 * profiles.OF_THE_BEST:.0f} %, and in the first batch for {100 * profiles.OF_ITS_FIRST:.0f} %.",
                [Panel(concurrency_plots.of_the_best(best))],
                [("auto beside the best fixed limit", best)],
                [Key("circle", "asyncio", "all batches"), Key("hollow", "ink", "the first batch, from a cold start")],
                provenance(best.records),
                layout="beside",
                is_open=True,
            )
        )
    else:
        missing.append(("auto is not measured at every endpoint yet:", commands.PROFILES))
    about = "Too few at once leave an endpoint idle; too many are refused, or wait there."
    return Section("concurrency", "Concurrency", about, figures, missing)


def gpu_wait(newest: Newest) -> Section:
    figures: list[Figure] = []
    missing: list[tuple[str, str]] = []
    if steps := gpu_wait_tables.steps(newest):
        step = REGISTRY["step-trl-asked"]
        figures.append(
            Figure(
                "gpu-wait-steps",
                "In a trainer's step",
                f"{step.n} trajectories, {step.profile.latency:g} s a judgement, {step.max_concurrent} at once, in"
                " virtual time, exact: what is left of judging when the trainer has nothing else to do.",
                [Panel(gpu_wait_plots.waits(steps, "shape"))],
                [("GPU wait in a step", steps)],
                [*modes(steps)],
                provenance(steps.records),
            )
        )
    else:
        missing.append(("What a trainer waits in a step is not measured yet:", commands.STEPS))
    if claimed := gpu_wait_tables.claimed(newest):
        told = REGISTRY["gpu-wait-sync"]
        figures.append(
            Figure(
                "gpu-wait-claims",
                "As the source documents claim",
                f"{told.n} samples of {told.profile.latency:g} s judged while the caller computes for"
                f" {told.compute:g} s, in virtual time, exact; in sync nothing begins before the result is asked for.",
                [Panel(gpu_wait_plots.waits(claimed, "mode"))],
                [("GPU wait as claimed", claimed)],
                [*modes(claimed), CLAIMED],
                provenance(claimed.records),
            )
        )
    if beside := gpu_wait_tables.beside(newest):
        judged = main_thread.SCENARIO
        figures.append(
            Figure(
                "main-thread",
                "What a busy main thread loses",
                f"{judged.n:,} samples of {1000 * judged.profile.latency:g} ms judged beside a main thread that never"
                " rests, on a real clock. The bar is how far the same work differed from itself with nothing judged: a"
                " loss within it was not seen.",
                [Panel(gpu_wait_plots.beside(beside))],
                [("Speed lost beside judging", beside)],
                [*modes(beside), Key("bar", "rule", "noise of the control")],
                provenance(beside.records),
                layout="beside",
                is_open=True,
            )
        )
    else:
        missing.append(("What a busy main thread loses beside judging is not measured yet:", commands.MAIN_THREAD))
    about = "A trainer hands its samples over and goes on; its GPUs wait for whatever is not judged when it asks."
    return Section("gpu-wait", "GPU wait", about, figures, missing)

"""Every source that the report reads, small and whole, with texts in them that are markup to whoever forgets to escape.

The figures are the registry's ideals and such: the tests ask whether they come through, not whether they are good.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

from bench import client_cost, cold_start, main_thread, records, sweep
from bench.figures import MEMORY
from bench.peers import PEERS
from bench.records import Direction, Record, record
from bench.report.newest import SPEED_UP
from bench.scenarios import BATCH_SIZES, CLAIMED_WAITS, CLAIMS, GRID, PROFILES, REGISTRY, SELF, STEPS, Scenario
from rewardcore import Endpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TIME = "2026-11-17T10:20:30Z"
MARKUP = "</script><script>document.title = 'broken'</script><b onmouseover=\"alert(1)\">&amp;"
COMMITS = [f"{number:x}" * 40 for number in range(1, 13)]
#: The commit from which on one series is higher, and another lower.
STEP = 6


@dataclass(frozen=True)
class Files:
    records: Path
    asv: Path
    nights: Path
    gate: Path

    @property
    def flags(self) -> list[str]:
        names = {"--records": self.records, "--asv": self.asv, "--nights": self.nights, "--gate": self.gate}
        return [str(word) for flag in names.items() for word in flag]


def write_all(directory: Path) -> Files:
    files = Files(*(directory / name for name in ("records.jsonl", "results", "nights", "gate.json")))
    records.write(all_records(), files.records)
    write_asv(files.asv)
    for number in range(4):
        write_night(files.nights, f"2026-11-1{number}T02:00:00Z", 1.0 + 0.1 * number, is_clean=number != 2)
    write_gate(files.gate)
    return files


def all_records() -> list[Record]:
    found = [*_speed_ups(), *_waits(), *_costs(), *_memory(), *_endpoints()]
    environment = {"python": "3.11", "cpu": MARKUP, "gpu": "none", "cores": "2"}
    return [replace(each, commit=COMMIT, time=TIME, run="one", environment=environment) for each in found]


def _speed_ups() -> list[Record]:
    found = []
    for scenario in [*GRID, *(REGISTRY[id] for claim in CLAIMS for id in (claim.before, claim.after))]:
        if scenario.ideal is not None and scenario.is_timed:
            unit = "virtual s" if scenario.is_virtual else "s"
            found.append(record(scenario, "makespan", scenario.ideal, unit, "lower", exact=scenario.is_virtual))
    for scenario in GRID:
        sync = REGISTRY[f"{scenario.backend}/sync/{scenario.n}"]
        if scenario.mode != "sync" and scenario.is_timed and scenario.ideal and sync.ideal:
            found.append(record(scenario, SPEED_UP, 0.9 * sync.ideal / scenario.ideal, "×", "higher"))
    user = replace(record(REGISTRY["real/asyncio/16"], SPEED_UP, 11.0, "×", "higher"), base_url=f"http://{MARKUP}")
    found.append(replace(user, model=MARKUP))
    for scenario in SELF:
        found.append(record(scenario, "requests", scenario.requests, "requests", "lower", exact=True))
        if scenario.batch_size > 1:
            found.append(record(scenario, "speed-up over batch size 1", scenario.batch_size**0.7, "×", "higher"))
    return found


def _waits() -> list[Record]:
    waits = [
        record(scenario, "GPU wait", float(7 * place), "virtual s", "lower") for place, scenario in enumerate(STEPS)
    ]
    claimed = [
        record(REGISTRY[id], "caller blocked", seconds, "virtual s", "lower") for id, seconds in CLAIMED_WAITS.items()
    ]
    beside = [
        record(main_thread.SCENARIO, f"{load} beside {background}: {metric}", value, "", "lower")
        for load in main_thread.LOADS
        for background in main_thread.BACKGROUNDS
        for metric, value in {"speed lost": 0.05, "noise of the control": 0.02, "efficiency": 0.9}.items()
    ]
    return [*waits, *claimed, *beside]


def _costs() -> list[Record]:
    cpu = [record(client_cost.SCENARIO, "client CPU", 300.0, "µs/sample", "lower", 5)]
    for place, peer in enumerate(PEERS):
        cpu.append(record(client_cost.SCENARIO, f"client CPU over {peer}", 1.3 / (1 + 5 * place), "×", "lower", 5))
    clients = (*cold_start.CLIENTS, *cold_start.PEERS)
    start = [
        record(cold_start.SCENARIO, f"{client}: {stage}", 0.3 * (1 + place), "CPU s", "lower")
        for place, client in enumerate(clients)
        for stage in cold_start.STAGES
    ]
    return [*cpu, *start]


def _memory(growth: float = 1.0) -> list[Record]:
    kinds = {"predicted peak": 1.0, "predicted peak of a long reply": 0.6, "CUDA peak allocated": 1.1 * growth}
    return [
        record(MEMORY, f"{kind}, batch {size}", factor * (2**20 + size * 2**21), "bytes", "lower")
        for kind, factor in kinds.items()
        for size in BATCH_SIZES
    ]


def _endpoints() -> list[Record]:
    shares = {"of the best fixed setting": 0.97, "of its first batch": 0.9, "refused": 0.01}
    swept = {8: [80.0], 16: [150.0], 32: [200.0], 64: [201.0], "auto": [199.0]}
    own = sweep.records_of(Endpoint("http://127.0.0.1:9/v1", MARKUP), 512, swept, dict.fromkeys(swept, 0.01))
    return own + [
        record(scenario, metric, value, "", "higher", exact=True)
        for scenario in PROFILES
        for metric, value in shares.items()
    ]


def write_asv(directory: Path) -> None:
    """Forty series that never move, one that became worse, one better; NaN is asv's "n/a"."""
    machine = directory / "machine"
    machine.mkdir(parents=True)
    (directory / "benchmarks.json").write_text(json.dumps({"version": 2}))
    (machine / "machine.json").write_text(json.dumps({"machine": "machine", "version": 1}))
    for place, commit in enumerate(COMMITS):
        is_after = place >= STEP
        results: dict[str, list[float]] = {
            f"series.still_{number}.track_requests": [float(number)] for number in range(40)
        }
        results |= {"series.async_1024.track_makespan": [40.0 if is_after else 36.0]}
        results |= {"series.sweep_auto.track_makespan": [25.0 if is_after else 28.0], "series.gpu": [float("nan")]}
        document = {"commit_hash": commit, "date": place, "result_columns": ["result", "params"]}
        document["results"] = {name: [values, []] for name, values in results.items()}
        (machine / f"{commit[:8]}-environment.json").write_text(json.dumps(document))


def write_night(directory: Path, when: str, factor: float, *, is_clean: bool = True) -> None:
    """As bench.nightly keeps them; `later` is what a later version may add."""

    def served(mode: str, value: float) -> Record:
        scenario = Scenario(f"vllm/{mode}/1024", 1024, mode, "real")
        return replace(record(scenario, SPEED_UP, value, "×", "higher"), backend="vllm", base_url=f"http://{when}")

    found = [served("process", 3.0 * factor), served("asyncio", 20.0 * factor), *_memory(factor)]
    document = {
        "schema": 1,
        "when": when,
        "commit": COMMIT,
        "device": {"kind": "cuda", "name": MARKUP},
        "model": "judge-7b",
        "clean": is_clean,
        "environment": {"gpu": "a GPU"},
        "records": [{**asdict(replace(each, commit=COMMIT, time=when)), "later": 1} for each in found],
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{when.replace(':', '')}.json").write_text(json.dumps(document))


def write_gate(file: Path) -> None:
    def finding(outcome: str, base: float, head: float, why: str = "") -> dict[str, object]:
        names = {"tier": "exact", "scenario": "async-1024", "version": 1, "metric": "makespan", "unit": "virtual s"}
        return {**names, "outcome": outcome, "base": base, "head": head, "why": why}

    document = {
        "verdict": "fail",
        "base": "main",
        "head": "the working tree",
        "tiers": ["exact", "history"],
        "findings": [
            finding("pass", 36.0, 36.0),
            finding("fail", 36.0, 40.0, MARKUP),
            finding("inconclusive", 1.0, 1.0),
        ],
        "advice": [MARKUP],
    }
    file.write_text(json.dumps(document))


def a_record(scenario: str = "async-1024", metric: str = "makespan", value: float = 36.0, **fields: object) -> Record:
    """One by itself, of a scenario of the registry."""
    direction: Direction = "lower"
    made = record(REGISTRY[scenario], metric, value, "virtual s", direction, exact=True)
    return replace(made, **{"commit": COMMIT, "time": TIME, "run": "one", "environment": {}, **fields})  # type: ignore[arg-type]


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)

    @property
    def references(self) -> list[str]:
        """Whatever a browser would load, or a reader follow."""
        names = ("src", "href", "srcset", "data", "poster", "action")
        return [str(each[name]) for _, each in self.found for name in names if name in each]

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

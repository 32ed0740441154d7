"""A real endpoint, the user's or a server of the night: checked first, its cost told first, and capped on the wire.

Nothing is exact here: servers score one sample differently twice even at temperature 0, reply with garbage, and die. So
how verdicts ended and how far the modes agree stand beside every speed-up, and none is given where a mode did not get
its replies. The modes take turns, each of them first in some round, on samples that are new in that round: whoever is
first pays for the server's cold prefix cache. Judges are warm, and open over all rounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import rewardcore
from bench import records
from bench.agreement import HEADINGS, Agreement, Measured
from bench.metered import Meter
from bench.records import Record
from bench.runner import Counts, Run, Stage, measure, open_scenario
from bench.scenarios import BACKEND_MODES, REGISTRY, SIZES, Backend, Scenario, samples_of
from bench.summary import columns
from rewardcore import Endpoint, Judge, Sample, rubrics
from rewardcore.calls import nobody
from rewardcore.rubrics import Rubric

#: A rough rule for text in English, and the characters of a rubric around a sample.
_CHARACTERS_PER_TOKEN, _RUBRIC_CHARACTERS = 4, 900
#: One for the models it lists, one for a sample.
CHECK_REQUESTS = 2
#: Seconds without any reply after which an endpoint is taken for gone.
MOST_SILENCE = 120.0


@dataclass(frozen=True)
class Budget:
    max_requests: int
    rounds: int = 3
    sizes: tuple[int, ...] = SIZES
    backend: Backend = "real"  # whose scenarios are run


@dataclass(frozen=True)
class Size:
    """All modes with n samples, in so many rounds."""

    n: int
    rounds: int
    backend: Backend = "real"

    @property
    def scenarios(self) -> dict[str, Scenario]:
        return {mode: REGISTRY[f"{self.backend}/{mode}/{self.n}"] for mode in BACKEND_MODES[self.backend]}

    @property
    def requests(self) -> int:
        scenarios = self.scenarios.values()
        return self.rounds * len(scenarios) * self.n + sum(min(self.n, scenario.places) for scenario in scenarios)


def plan(budget: Budget) -> list[Size]:
    """The sizes that fit below the cap, smallest first and each with its baseline, in as many rounds as do."""
    sizes, left = [], budget.max_requests - CHECK_REQUESTS
    for n in budget.sizes:
        rounds = range(budget.rounds, 0, -1)
        fitting = [size for each in rounds if (size := Size(n, each, budget.backend)).requests <= left]
        if not fitting:
            break
        sizes.append(fitting[0])
        left -= fitting[0].requests
    return sizes


@dataclass
class RealEndpoint:
    """A context manager around the judges of one endpoint: one for each mode, warm, and metered together."""

    endpoint: Endpoint
    budget: Budget
    meter: Meter
    rubric: Rubric = rubrics.QUALITY
    remark: str = ""
    _rounds: dict[Size, list[dict[str, Run]]] = field(default_factory=dict)
    _judges: dict[str, Judge] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @classmethod
    def connect(
        cls,
        endpoint: Endpoint,
        budget: Budget,
        *,
        rubric: Rubric = rubrics.QUALITY,
        most_silence: float = MOST_SILENCE,
    ) -> RealEndpoint:
        """Raises ValueError where the endpoint cannot be used, saying what to change."""
        if not plan(budget):
            least = CHECK_REQUESTS + Size(budget.sizes[0], 1, budget.backend).requests
            raise ValueError(f"--max-requests {budget.max_requests} is too few to compare modes; {least} are the least")
        meter = Meter(budget.max_requests, most_silence)
        meter.spend(CHECK_REQUESTS)
        return cls(endpoint, budget, meter, rubric, check_endpoint(endpoint, rubric))

    @property
    def sizes(self) -> list[Size]:
        return plan(self.budget)

    def estimate(self) -> str:
        sizes = self.sizes
        requests = CHECK_REQUESTS + sum(size.requests for size in sizes)
        read = sum(size.requests * _prompt_tokens(size) // size.n for size in sizes)
        limit = self.endpoint.reply_limit()
        most = f" and at most {requests * limit[1]:,} completion tokens" if limit else ""
        modes, runs = len(sizes[0].scenarios), ", ".join(f"{size.n} × {size.rounds} rounds" for size in sizes)
        line = (
            f"real endpoint {self.endpoint.base_url}, model {self.endpoint.model!r}: {modes} modes with {runs}; "
            f"{requests} requests if none is asked again, about {read:,} prompt tokens{most}; "
            f"never more than {self.budget.max_requests} requests (--max-requests)"
        )
        if left_out := [str(n) for n in self.budget.sizes if n not in {size.n for size in sizes}]:
            line += f"; left out to stay below that: n = {', '.join(left_out)}"
        return line + (f"\n{self.remark}" if self.remark else "")

    def __enter__(self) -> RealEndpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self._judges.clear()
        self._stack.close()

    def measure(self, size: Size, tell: Callable[[list[Record]], object] = nobody) -> None:
        """Every mode in every round, or until the endpoint is gone or the cap reached; `tell` hears of each at once."""
        scenarios, rounds = size.scenarios, self._rounds.setdefault(size, [])
        modes = list(scenarios)
        for mode, scenario in scenarios.items():
            self._warm(mode, scenario, min(size.n, scenario.places))
        for number in range(size.rounds):
            first = number % len(modes)
            rounds.append({})
            for mode in modes[first:] + modes[:first]:
                if self.meter.stopped is None:
                    rounds[-1][mode] = run = self._run(mode, scenarios[mode], number)
                    tell(self._round_records(run, number + 1))
            tell(self._agreement_records(rounds[-1], number + 1))
            if self.meter.stopped is not None:
                del rounds[max(1, number) :]  # it was cut; of the first, what became of its samples must be told
                return

    def measured(self, size: Size) -> list[Measured]:
        """Over the rounds that all modes went through; of the first, as far as it came."""
        begun = self._rounds.get(size, [])
        scenarios = size.scenarios
        rounds = [found for found in begun if len(found) == len(scenarios)] or begun[:1]
        runs = {mode: tuple(found[mode] for found in rounds if mode in found) for mode in scenarios}
        return [Measured(scenarios[mode], those) for mode, those in runs.items() if those]

    def lines(self, measured: list[Measured]) -> list[str]:
        """The table; of what was not compared, why."""
        baseline = _baseline(measured)
        lines = list(columns([HEADINGS, *(each.row(baseline or each) for each in measured)])) if measured else []
        if self.meter.stopped is not None:
            lines.append(f"stopped after {self.meter.sent} requests: {self.meter.stopped}")
        for each in measured:
            if not each.has_every_reply:
                lines.append(f"{each.scenario.mode} did not get every reply: its time is no speed-up")
        return lines

    def records(self, measured: list[Measured]) -> list[Record]:
        baseline = _baseline(measured)
        return [self._from_here(record) for each in measured for record in each.records(baseline or each)]

    def _round_records(self, run: Run, number: int) -> list[Record]:
        figures = [("makespan", run.seconds or 0.0, "s"), ("requests", run.requests, "requests")]
        tokens = [
            ("prompt tokens", run.prompt_tokens, "tokens"),
            ("completion tokens", run.completion_tokens, "tokens"),
        ]
        return [
            self._from_here(records.record(run.scenario, f"{metric}, round {number}", value, unit, "lower"))
            for metric, value, unit in [*figures, *tokens]
        ]

    def _agreement_records(self, found: dict[str, Run], number: int) -> list[Record]:
        """Of one round in which all took their turn: the share of scores that are equal to the baseline's."""
        agreements = {
            mode: Agreement.of(list(run.scores), list(found["sync"].scores))
            for mode, run in found.items()
            if mode != "sync" and "sync" in found
        }
        return [
            self._from_here(
                records.record(
                    found[mode].scenario,
                    f"scores equal to sync's, round {number}",
                    agreement.equal,
                    "of those both gave",
                    "higher",
                )
            )
            for mode, agreement in agreements.items()
            if agreement is not None
        ]

    def _from_here(self, record: Record) -> Record:
        return replace(record, base_url=self.endpoint.mask()(self.endpoint.base_url), model=self.endpoint.model)

    def _warm(self, mode: str, scenario: Scenario, requests: int) -> None:
        if mode not in self._judges:
            stage = Stage(self.endpoint, options={"rubric": self.rubric, "wrap_transport": self.meter.wrap})
            self._judges[mode] = self._stack.enter_context(open_scenario(scenario, stage))
        if self.meter.stopped is None:
            self.meter.begin()
            self._judges[mode].judge(
                [Sample(f"Warm-up of {mode}", str(place), ground_truth="1") for place in range(requests)]
            )

    def _run(self, mode: str, scenario: Scenario, number: int) -> Run:
        samples = samples_of(replace(scenario, seed=scenario.seed + number))
        self.meter.begin()
        before = self.meter.sent
        stage = Stage(self.endpoint, counts=lambda: Counts(self.meter.sent - before))
        return measure(self._judges[mode], scenario, stage, samples)


def check_endpoint(endpoint: Endpoint, rubric: Rubric = rubrics.QUALITY) -> str:
    """Within seconds; raises ValueError where nothing could be judged. What it returns is worth a remark."""
    with rewardcore.open_judge("sync", endpoint, rubric=rubric, cache=None) as judge:
        found = judge.check()
    for what, ok, says in found.findings:
        if ok is False and not (what == "sample" and says.startswith(("Unparsed", "Truncated", "Refused"))):
            raise ValueError(f"{endpoint.base_url} does not judge: {says}")
    return "".join(f"the check's sample has no score: {says}" for _, ok, says in found.findings if ok is False)


def _baseline(measured: list[Measured]) -> Measured | None:
    return next((each for each in measured if each.scenario.mode == "sync"), None)


def _prompt_tokens(size: Size) -> int:
    scenario = next(iter(size.scenarios.values()))
    return (
        sum(len(str(sample.prompt)) + len(str(sample.response)) + _RUBRIC_CHARACTERS for sample in samples_of(scenario))
        // _CHARACTERS_PER_TOKEN
    )

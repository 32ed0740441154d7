"""What the GPUs wait for the judge in one step of training, in the shapes of TRL and verl, in virtual time.

TRL asks its reward functions after it has computed log-probabilities, or is told of the completions before
(`judging_ahead`). verl's batch managers are asked at once, or submitted; its reward loop judges each trajectory as soon
as that is generated, in a call of its own. `python -m bench.trl_steps` and `python -m bench.verl_managers` measure the
trainers themselves.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from bench.handover import Outcome, tallied
from bench.records import Record, record
from bench.runner import Run, Stage, check_equal_work, open_scenario, run, stage_for
from bench.scenarios import GENERATION, GENERATION_SPREAD, STEPS, Scenario, samples_of
from bench.virtual import VirtualClock
from rewardcore import Verdict
from rewardcore.stats import Stats


@dataclass(frozen=True)
class Shape:
    """How a trainer goes about it, and the shape of the same trainer that its wait is compared with."""

    about: str
    compared_with: str | None = None


SHAPES = {
    "step-one-by-one": Shape("one request after another"),
    "step-trl-asked": Shape("TRL, when it asks", "step-one-by-one"),
    "step-trl-ahead": Shape("TRL, judging_ahead", "step-trl-asked"),
    "step-verl-batch": Shape("verl, a whole batch", "step-one-by-one"),
    "step-verl-submitted": Shape("verl, a batch submitted", "step-verl-batch"),
    "step-verl-loop": Shape("verl, its reward loop", "step-verl-batch"),
}


def measure() -> dict[str, Run]:
    """scenario → its run, in which `waited` is what the GPUs wait."""
    runs = {}
    for scenario in STEPS:
        with stage_for(scenario) as stage:
            runs[scenario.id] = run_step(scenario, stage)
    check_equal_work(list(runs.values()))
    return runs


def run_step(scenario: Scenario, stage: Stage) -> Run:
    return (_run_loop if scenario.id == "step-verl-loop" else run)(scenario, stage)


def generated_at(scenario: Scenario) -> list[float]:
    """When each trajectory is complete, as continuous batching ends them."""
    draw = random.Random(scenario.seed)
    return [round(GENERATION * draw.lognormvariate(0.0, GENERATION_SPREAD), 3) for _ in range(scenario.n)]


def _run_loop(scenario: Scenario, stage: Stage) -> Run:
    """n calls of one sample, each when its trajectory is there: the wait begins when the last one is."""
    samples, times, clock = samples_of(scenario), generated_at(scenario), stage.clock
    assert isinstance(clock, VirtualClock)
    random.seed(scenario.seed)
    with open_scenario(scenario, stage) as judge:

        async def trajectory(place: int) -> Verdict:
            await asyncio.sleep(times[place])
            (verdict,) = await judge.ajudge([samples[place]])
            return verdict

        async def step() -> list[Verdict]:
            return await asyncio.gather(*map(trajectory, range(scenario.n)))

        started = clock.now()
        verdicts = clock.run(step())
        seconds = round(clock.now() - started, 9)
        outcome = Outcome(seconds, round(seconds - max(times), 9), tallied(verdicts))
        return Run.of(scenario, stage, outcome, Stats(), judge.stats)


def records_of(runs: dict[str, Run]) -> list[Record]:
    return [record(run.scenario, "GPU wait", run.waited, "virtual s", "lower", exact=True) for run in runs.values()]


def lines_of(runs: dict[str, Run]) -> list[str]:
    lines = []
    for name, shape in SHAPES.items():
        waited = runs[name].waited
        gained = "" if shape.compared_with is None else f"   gained {runs[shape.compared_with].waited - waited:6.1f} s"
        lines.append(f"{shape.about:26} the GPUs wait {waited:6.1f} s{gained}")
    return lines

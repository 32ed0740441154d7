"""What TRL's GRPO trainer waits for the judge in a step, asked last or told ahead: `python -m bench.trl_steps`.

A real trainer on the CPU with a tiny policy, which computes log-probabilities of a reference between generation and
rewards; both ways in turns, in one process, warm. `waited` is the trainer's own log of our function. What can be gained
is no more than the log-probabilities take, nor than judging does. It needs the extra trl.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rewardcore as rc
from bench.records import FILE, record, write
from bench.scenarios import TRL_STEPS
from rewardcore.testing import Profile, SimulatedServer
from rewardcore.trainers.trl import judging_ahead, reward_function

GENERATIONS = 8
WAYS = ("asked", "ahead")


@dataclass(frozen=True)
class Waits:
    """Medians over steps: seconds waited for the judge when asked last and when told ahead, and log-probabilities."""

    asked: float
    ahead: float
    log_probabilities: float
    steps: int


def measure(n: int, rounds: int = 2, latency: float = TRL_STEPS.profile.latency) -> Waits:
    waited: dict[str, list[float]] = {way: [] for way in WAYS}
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as directory, SimulatedServer(Profile(latency=latency)) as server:
        endpoint = rc.Endpoint(server.base_url, "judge", api_key_env=None)
        function = reward_function(endpoint, cache=None)
        for _ in range(rounds):
            for way in WAYS:
                steps, seconds = _train(Path(directory), function, way, n)
                waited[way] += steps
                spent += seconds
        function.judge_here().close()
    return Waits(*(statistics.median(waited[way]) for way in WAYS), statistics.median(spent), len(waited["asked"]))


def _train(directory: Path, function: Any, way: str, n: int) -> tuple[list[float], list[float]]:
    """What each step after the first has waited, and how long it computed log-probabilities before its rewards."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from fixtures.tiny_judge import make_tiny_judge

    kind = judging_ahead(GRPOTrainer) if way == "ahead" else GRPOTrainer
    rows = [{"prompt": [{"role": "user", "content": f"What is {number} × 7?"}]} for number in range(n // GENERATIONS)]
    trainer = kind(
        model=str(make_tiny_judge(directory / "policy")),
        reward_funcs=function,
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(
            output_dir=str(directory),
            max_steps=4,
            per_device_train_batch_size=n,
            num_generations=GENERATIONS,
            max_completion_length=64,
            beta=0.1,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    with _timed(trainer) as seconds:
        trainer.train()
    logged = [step[f"{function.__name__}/waited"] for step in trainer.state.log_history[:4]]
    return logged[1:], seconds[1:]


@contextmanager
def _timed(trainer: Any) -> Iterator[list[float]]:
    """How long the log-probabilities before the rewards take, step by step: those without a gradient."""
    import torch

    compute, seconds = trainer._get_per_token_logps_and_entropies, []

    def timed(*given: Any, **named: Any) -> Any:
        started = time.perf_counter()
        found = compute(*given, **named)
        if not torch.is_grad_enabled():
            seconds.append(time.perf_counter() - started)
        return found

    trainer._get_per_token_logps_and_entropies = timed
    yield seconds


def line_of(waits: Waits) -> str:
    return (
        f"asked last {waits.asked:.3f} s, told ahead {waits.ahead:.3f} s: {waits.asked - waits.ahead:.3f} s gained"
        f" a step, of {waits.log_probabilities:.3f} s of log-probabilities (medians of {waits.steps} steps)"
    )


def main() -> None:
    n = TRL_STEPS.n
    waits = measure(n)
    print(f"GRPO on the CPU, {n} completions a step, {TRL_STEPS.profile.latency:g} s a judgement, 60 at once")
    print(line_of(waits))
    figures = [("waited, asked last", waits.asked), ("waited, told ahead", waits.ahead)]
    write([record(TRL_STEPS, metric, value, "s", "lower", waits.steps) for metric, value in figures], FILE)
    print(f"records: {FILE}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Rewards a second of verl's managers and of ours, on one simulated judge: `python -m bench.verl_managers [N]`.

Everybody asks the same judge about the same responses by the same client, with nothing cached and everything warm; only
who calls whom differs. verl's naive manager asks for one response after another. Its reward loop, under a local Ray,
hands each response to a worker, in a call of its own: with our function, and with our manager. It needs the extra verl.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.records import FILE, record, write
from bench.runner import UnequalWork
from bench.scenarios import REGISTRY, VERL_MANAGERS, samples_of
from rewardcore import Sample
from rewardcore.rewards import compute_score, judges
from rewardcore.testing import SimulatedServer

NAIVE = "verl: naive, one by one"
OURS = "ours: length penalty, a whole batch"
#: At 60 at once, how many times the naive manager's rewards a second ours gives.
PROMISED = 40.0
RUBRIC = "monitor"
Managed = Callable[[Any], Any]
Opened = Callable[[], contextlib.AbstractContextManager[Managed]]


@dataclass(frozen=True)
class Rate:
    """The quickest of a few rounds."""

    rewards_a_second: float
    rounds: int


def measure(n: int, rounds: int = 3, with_ray: bool = True, say: Callable[[str], object] = print) -> dict[str, Rate]:
    """Manager → its rate, the best of its rounds; the naive one, which takes 20 ms a response, has one."""
    rates = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(SimulatedServer(VERL_MANAGERS.profile))
        stack.enter_context(_environment(server))
        managers, batch = _managers(directory, with_ray)
        for name, opened in managers.items():
            say(f"{name} …")
            warm, count = (min(n, 60), 1) if name == NAIVE else (n, rounds)
            with opened() as manager:
                manager(batch(warm, 0))
                seconds = [_timed(server, manager, batch(n, number), n) for number in range(1, count + 1)]
            rates[name] = Rate(n / min(seconds), count)
    return rates


def _timed(server: SimulatedServer, manager: Managed, data: Any, n: int) -> float:
    server.reset()
    started = time.perf_counter()
    rewards = manager(data)
    seconds = time.perf_counter() - started
    if (asked := server.stats().requests) != n or rewards.count_nonzero() < n // 2:
        raise UnequalWork(f"{asked} requests reached the judge where {n} were due")
    return seconds


@contextlib.contextmanager
def _environment(server: SimulatedServer) -> Iterator[None]:
    """Where verl's workers find the judge."""
    before = dict(os.environ)
    os.environ |= {
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": "none",
        "MONITOR_MODEL_NAME": "judge",
        "TRAIN_WITH_MONITOR": "true",
        "MONITOR_CACHE": "false",
        "MONITOR_RUBRIC": RUBRIC,
        "MONITOR_CORRECT_REWARD": "-0.5",
    }
    try:
        yield
    finally:
        for judge in judges._judges.values():
            judge.close()
        os.environ.clear()
        os.environ.update(before)


def _managers(directory: Path, with_ray: bool) -> tuple[dict[str, Opened], Callable[[int, int], Any]]:
    """Each is called with a batch; and what makes batches, none of whose responses comes twice."""
    from transformers import AutoTokenizer
    from verl.workers.reward_manager import BatchRewardManager, NaiveRewardManager

    from fixtures.tiny_judge import make_tiny_judge
    from rewardcore.trainers.verl import LengthPenaltyRewardManager

    model = make_tiny_judge(directory / "policy")
    tokenizer = AutoTokenizer.from_pretrained(model)
    judged = {"enable_openai_reward": True, "model_name": "judge", "max_concurrent_requests": 60, "cache": False}
    managers: dict[str, Opened] = {
        NAIVE: lambda: contextlib.nullcontext(NaiveRewardManager(tokenizer, 0, compute_score)),
        "verl: batch, our function": lambda: contextlib.nullcontext(BatchRewardManager(tokenizer, 0, compute_score)),
        OURS: lambda: contextlib.nullcontext(LengthPenaltyRewardManager(tokenizer, 0, rubric=RUBRIC, **judged)),
    }
    if with_ray:
        managers |= _loops(model)
    return managers, lambda n, number: _batch(tokenizer, n, number)


def _loops(model: Path) -> dict[str, Opened]:
    path = "pkg://rewardcore.trainers.verl"
    manager = ["source=importlib", "name=JudgeRewardManager", f"module.path={path}"]
    kwargs = ["model_name=judge", "cache=false", f"rubric={RUBRIC}"]
    overrides = {
        "verl: reward loop, our function": [f"reward.custom_reward_function.path={path}"],
        "ours: reward loop, our manager": [
            *(f"reward.reward_manager.{each}" for each in manager),
            *(f"+reward.reward_kwargs.{each}" for each in kwargs),
        ],
    }
    return {
        name: partial(_loop, [*given, f"actor_rollout_ref.model.path={model}"]) for name, given in overrides.items()
    }


@contextlib.contextmanager
def _loop(overrides: list[str]) -> Iterator[Managed]:
    """verl's reward loop with one worker, under a Ray of its own."""
    import ray
    from hydra import compose, initialize_config_module
    from verl.experimental.reward_loop import RewardLoopManager

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", ["reward.num_workers=1", *overrides])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": dict(_ours())})
    try:
        loop = RewardLoopManager(config)
        yield lambda data: loop.compute_rm_score(data).batch["rm_scores"]
    finally:
        ray.shutdown()


def _ours() -> Iterator[tuple[str, str]]:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        yield name, os.environ[name]
    yield from ((name, value) for name, value in os.environ.items() if "MONITOR" in name)


def _batch(tokenizer: Any, n: int, number: int) -> Any:
    """n responses to n / 8 prompts, all of them right, as a rollout leaves them."""
    import numpy
    import torch
    from verl import DataProto

    samples = samples_of(VERL_MANAGERS)[:n]
    prompts = [_tokens(tokenizer, sample.prompt, 48) for sample in samples]
    responses = [_tokens(tokenizer, _response(sample, number), 96) for sample in samples]
    columns = {
        "data_source": ["sums"] * n,
        "reward_model": [{"style": "rule", "ground_truth": "4"}] * n,
        "extra_info": [{"question": sample.prompt} for sample in samples],
        "uid": [f"u{place // 8}" for place in range(n)],
        "raw_prompt": [[{"role": "user", "content": sample.prompt}] for sample in samples],
    }
    masks = [[1 if token else 0 for token in (*left, *right)] for left, right in zip(prompts, responses, strict=True)]
    return DataProto.from_dict(
        {
            "prompts": torch.tensor(prompts),
            "responses": torch.tensor(responses),
            "attention_mask": torch.tensor(masks),
        },
        {name: _column(numpy, values) for name, values in columns.items()},
    )


def _response(sample: Sample, number: int) -> str:
    words = str(sample.response).split()[:30]
    return f"{number} {' '.join(words)} <answer>4</answer>"


def _tokens(tokenizer: Any, text: str, length: int) -> list[int]:
    tokens: list[int] = tokenizer.encode(text)
    if 0 in tokens:
        raise UnequalWork("the tokenizer writes a 0, which is padding here")
    return (tokens[-length:] + [0] * length)[:length]


def _column(numpy: Any, values: list[Any]) -> Any:
    column = numpy.empty(len(values), dtype=object)
    column[:] = values
    return column


def lines_of(rates: dict[str, Rate]) -> list[str]:
    naive = rates[NAIVE].rewards_a_second
    return [
        f"{name:36} {rate.rewards_a_second:8.0f} rewards/s   {rate.rewards_a_second / naive:6.1f} × the naive manager"
        for name, rate in rates.items()
    ]


def main(arguments: list[str]) -> None:
    n = int(arguments[0]) if arguments else VERL_MANAGERS.n
    rates = measure(n, say=lambda line: print(line, file=sys.stderr, flush=True))
    print(f"{n} × 20 ms, 60 at once, nothing cached; promised: ours at least {PROMISED:g} × the naive manager")
    print("\n".join(lines_of(rates)))
    if n == VERL_MANAGERS.n:
        naive = rates[NAIVE].rewards_a_second
        for name, rate in rates.items():
            figure = rate.rewards_a_second / naive
            write([record(REGISTRY[VERL_MANAGERS.id], f"{name}: over naive", figure, "×", "higher", rate.rounds)], FILE)
        print(f"records: {FILE}")


if __name__ == "__main__":
    main(sys.argv[1:])

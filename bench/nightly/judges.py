"""The judge of a night as its parts load it: the tiny one, made on the spot, or the user's; and who counts its tokens.

Brings torch. The tiny judge is in float32, where every batch gives the same texts; a user's model is as it says itself.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.nightly.parts import Hear, Order
from bench.records import Record, record, records_of
from bench.runner import Counts, Run
from bench.scenarios import Scenario, samples_of
from bench.self_mode import RUBRIC, tiny_judge
from rewardcore import Sample
from rewardcore.clock import Clock
from rewardcore.local.generator import Conversation
from rewardcore.local.model_files import PromptEncoder, load_tokenizer
from rewardcore.memory.model_config import context_length, load_config
from rewardcore.memory.release import is_out_of_memory

#: A server may put some of its own before a prompt.
_SPECIAL_TOKENS = 16


def directory_of(order: Order) -> Path:
    return Path(order.model) if order.model else tiny_judge()


def data_type_of(order: Order) -> str:
    return "auto" if order.model else "float32"


def engine_context(order: Order, directory: Path) -> int | None:
    """How long vLLM must let a sequence be: the longest prompt of the order and its reply, in steps of 256 tokens.

    With all of a long context, it does not start on a smaller GPU. None is the model's own, where that is shorter.
    """
    encoder = PromptEncoder(load_tokenizer(directory))
    samples: list[Sample] = []
    for scenario in order.of_registry:
        for seed in (0, *(scenario.seed + number - 1 for number in order.all_rounds)):  # of the warm-up, of each round
            samples += samples_of(replace(scenario, seed=seed))
    longest = max(encoder.lengths([RUBRIC.messages(sample) for sample in samples]), default=0)
    needed = -(-(longest + order.max_tokens + _SPECIAL_TOKENS) // 256) * 256
    own = context_length(load_config(directory))
    return None if own is not None and own <= needed else needed


def identity(directory: Path) -> str:
    """The model's name, and a digest of what says which one it is; of the weights, their names and sizes."""
    config = json.loads((directory / "config.json").read_bytes())
    config.pop("transformers_version", None)  # says who wrote it down
    weights = sorted((file.name, file.stat().st_size) for file in directory.glob("*.safetensors"))
    digest = hashlib.sha256(json.dumps([config, weights], sort_keys=True).encode()).hexdigest()[:8]
    return f"{directory.resolve().name} ({digest})"


class CpuClock(Clock):
    """On the CPU a model is one thread that never waits: the time it took is its own, without the neighbours'."""

    def now(self) -> float:
        return time.process_time()


class Witness:
    """A generator around a generator: counts calls, and keeps the replies, whose tokens are counted afterwards."""

    def __init__(self, generator: Any, directory: Path) -> None:
        self._generator = generator
        self._tokenizer = load_tokenizer(directory)
        self.max_prompt_tokens = generator.max_prompt_tokens
        self.lengths = generator.lengths
        self.reset()

    def reset(self) -> None:
        self._calls, self._texts, self.ran_out_of_memory = 0, [], False

    def generate(self, conversations: list[Conversation]) -> list[str]:
        self._calls += 1
        try:
            texts: list[str] = self._generator.generate(conversations)
        except Exception as error:
            self.ran_out_of_memory |= is_out_of_memory(error)
            raise
        self._texts += texts
        return texts

    def counts(self) -> Counts:
        return Counts(self._calls)

    def tokens(self) -> int:
        return sum(len(self._tokenizer.encode(text, add_special_tokens=False)) for text in self._texts)


def speed_records(runs: Sequence[Run], suffix: str = "") -> list[Record]:
    """How fast a local judge was in these rounds; of a single one, `suffix` says which."""
    seconds, scenario = sum(run.seconds or 0.0 for run in runs), runs[0].scenario
    amounts = {"samples a second": scenario.n * len(runs), "tokens a second": sum(r.completion_tokens for r in runs)}
    return [
        record(scenario, f"{metric}{suffix}", amount / seconds, "1/s", "higher", len(runs))
        for metric, amount in amounts.items()
    ]


def counted_records(run: Run) -> list[Record]:
    """What is the same in every round: calls, tokens, verdicts."""
    times = ("makespan", "efficiency", "caller blocked")
    statuses = [
        record(run.scenario, f"verdicts {status}", count, "samples", "equal") for status, count in run.statuses.items()
    ]
    return [each for each in records_of(run) if each.metric not in times] + statuses


def failed(scenario: Scenario, error: Exception) -> dict[str, str]:
    return {"failed": scenario.id, "why": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}


def hear_records(hear: Hear, records: Iterable[Record]) -> None:
    hear({"records": [asdict(each) for each in records]})

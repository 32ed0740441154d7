"""The self mode on a tiny local model: calls, padding, batching's gain, our own overhead, and memory by batch size.

Importing this module brings torch. Without a GPU, memory is predicted from the model's config; with one, the peak is
measured beside it. One thread, as OMP_NUM_THREADS=1 says too: two on a busy machine give nonsense.
"""

from __future__ import annotations

import contextlib
import functools
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import rewardcore
from bench.counted_memory import count
from bench.records import DIRECTORY, Direction, Record, record
from bench.runner import Stage
from bench.scenarios import BATCH_SIZES, REGISTRY, Scenario, samples_of
from fixtures.tiny_judge import make_tiny_judge
from rewardcore.local.batching import form_batches, padding_waste
from rewardcore.local.torch_generator import TorchGenerator
from rewardcore.memory.measured import Measured, measure
from rewardcore.memory.predicted import Curve, Peak, fit, predict
from rewardcore.rubrics import TemplateRubric

NEW_TOKENS = 64
#: Prompt and reply in tokens, where the KV cache at the end outweighs what reading the prompt takes.
LONG_REPLY = (16, 1000)
#: Short, since the tiny model reads little: what is measured is batching, not the judge's manners.
RUBRIC = TemplateRubric("short", "{response} Rate this from 1 to 10: <score>X</score>")
SPEED = Scenario("self-speed", 128, "self", "torch")
PADDING = REGISTRY["torch/self-8/1024"]


@functools.cache
def generator() -> TorchGenerator:
    """The tiny judge, on the GPU where there is one. Whoever brings another passes it to what measures."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return TorchGenerator(tiny_judge(), device=device, dtype="float32", max_new_tokens=NEW_TOKENS)


def tiny_judge() -> Path:
    """Made once, and there at once: two processes may want it at the same time."""
    directory = DIRECTORY / "tiny-judge"
    if not (directory / "model.safetensors").exists():
        DIRECTORY.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=DIRECTORY) as temporary:
            made = make_tiny_judge(Path(temporary) / "judge")
            with contextlib.suppress(OSError):  # the other was first
                made.rename(directory)
    return directory


def torch_stage() -> Stage:
    return Stage(generator(), options={"rubric": RUBRIC})


def measure_padding(judge: TorchGenerator) -> tuple[float, float]:
    """The share of computed positions that are padding: batches formed by length, and in random order."""
    lengths = judge.lengths([RUBRIC.messages(sample) for sample in samples_of(PADDING)])
    shuffled = random.Random(PADDING.seed).sample(range(len(lengths)), len(lengths))
    size = PADDING.batch_size
    at_random = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
    return padding_waste(lengths, form_batches(lengths, size)), padding_waste(lengths, at_random)


def padding_record(by_length: float) -> Record:
    return record(PADDING, "padding", by_length, "of the computed positions", "lower")


def measure_batching(pairs: int) -> float:
    """Samples a second at batch size 8 over batch size 1, the median of alternating pairs."""
    return _paired(lambda: _judge(1), lambda: _judge(8), pairs)


def measure_overhead(pairs: int) -> float:
    """Time of the self mode over a bare `generate` loop on the very same batches, the median of alternating pairs."""
    return _paired(lambda: _judge(8), _bare_loop, pairs)


def _paired(slow: Callable[[], object], fast: Callable[[], object], pairs: int) -> float:
    ratios = []
    for pair in range(pairs):
        if pair % 2:
            denominator, numerator = _timed(fast), _timed(slow)
        else:
            numerator, denominator = _timed(slow), _timed(fast)
        ratios.append(numerator / denominator)
    return statistics.median(ratios)


def _timed(work: Callable[[], object]) -> float:
    # On the CPU it is one thread that never waits, so CPU time is its time, without the neighbours'.
    clock = time.perf_counter if torch.cuda.is_available() else time.process_time
    started = clock()
    work()
    return clock() - started


def _judge(batch_size: int) -> None:
    with rewardcore.open_judge("self", generator(), rubric=RUBRIC, batch_size=batch_size) as judge:
        judge.judge(samples_of(SPEED))


def _bare_loop() -> None:
    conversations = [RUBRIC.messages(sample) for sample in samples_of(SPEED)]
    for batch in form_batches(generator().lengths(conversations), SPEED.batch_size):
        generator().generate([conversations[index] for index in batch])


def counted_records(judge: TorchGenerator) -> list[Record]:
    """What one batch of the longest samples really allocates here, by batch size, and what of it stays behind."""
    conversations = [RUBRIC.messages(sample) for sample in samples_of(PADDING)]
    first, *_ = form_batches(judge.lengths(conversations), BATCH_SIZES[-1])
    longest = [conversations[index] for index in first]
    judge.generate(longest)  # what the model keeps from its first batch on is no batch's own
    records = []
    for size in BATCH_SIZES:
        counted = count(judge.model, functools.partial(judge.generate, longest[:size]))
        records.append(record(PADDING, f"counted peak, batch {size}", counted.peak, "bytes", "lower"))
        records.append(record(PADDING, f"left behind by a batch of {size}", counted.left, "bytes", "lower"))
    return records


@dataclass(frozen=True)
class Memory:
    predicted: list[Peak]
    curve: Curve
    measured: list[Measured]
    of_a_long_reply: list[Peak]

    def records(self) -> list[Record]:
        return self.predicted_records() + self.measured_records()

    def predicted_records(self) -> list[Record]:
        figures: list[tuple[str, float, str]] = [
            ("predicted peak, intercept", self.curve.intercept, "bytes"),
            ("predicted peak, slope", self.curve.slope, "bytes/sample"),
        ]
        for kind, peaks in (("", self.predicted), (" of a long reply", self.of_a_long_reply)):
            figures += [(f"predicted peak{kind}, batch {peak.batch_size}", peak.total, "bytes") for peak in peaks]
        return [record(PADDING, *figure, "lower") for figure in figures]

    def measured_records(self) -> list[Record]:
        figures: list[tuple[str, float, str, Direction]] = []
        for peak in self.measured:
            figures += [
                (f"CUDA peak allocated, batch {peak.batch_size}", peak.allocated, "bytes", "lower"),
                (f"CUDA peak reserved, batch {peak.batch_size}", peak.reserved, "bytes", "lower"),
                (f"tokens a second, batch {peak.batch_size}", peak.tokens_per_second, "1/s", "higher"),
            ]
        return [record(PADDING, *figure) for figure in figures]


def measure_memory(judge: TorchGenerator) -> Memory:
    """As predicted; and on a GPU as measured."""
    if judge.device.type != "cuda":
        return predict_memory(judge)
    measured = list(measure(judge.model, BATCH_SIZES, longest_prompt(judge), judge.max_new_tokens))
    return replace(predict_memory(judge), measured=measured)


def predict_memory(judge: TorchGenerator) -> Memory:
    """Peaks for every batch size of the grid, at the longest prompt of the 1024 samples."""
    model, lengths = judge.model, (longest_prompt(judge), judge.max_new_tokens)
    peaks = predict(model.config, BATCH_SIZES, *lengths, model.dtype)
    return Memory(peaks, fit(peaks), [], predict(model.config, BATCH_SIZES, *LONG_REPLY, model.dtype))


def longest_prompt(judge: TorchGenerator) -> int:
    """In tokens, of the 1024 samples."""
    return max(judge.lengths([RUBRIC.messages(sample) for sample in samples_of(PADDING)]))

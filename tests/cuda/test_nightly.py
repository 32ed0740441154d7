"""The control, the probe and the part torch of a night, in this process, on a faked GPU."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest
import torch

from bench.nightly import batches, budget, control
from bench.nightly.compare import compare
from bench.nightly.gpu import Watch
from bench.nightly.night import Device, Night
from bench.nightly.parts import CONTROL_SCENARIOS, Order, Part, parts_of
from bench.nightly.running import Plan, run_night
from bench.nightly.series import series_of
from bench.nightly.summary import summary
from bench.records import environment
from bench.scenarios import BATCH_SIZES, NIGHTLY_CONTROL
from rewardcore.memory.neighbours import Process
from tests.cuda.devices import GIB, MIB, Cuda
from tests.cuda.fake import fake_cuda

ORDER = Order("", "cuda", rounds=3, max_tokens=32)
MEMORY = "torch/self-8/1024"
TRAINER = Process("fake", 4712, "python3")


@pytest.fixture(scope="module", autouse=True)
def small_control() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(control.SIDE, "cuda", 32)
        patch.setitem(control.WARM_UP, "cuda", 0.2)
        environment.cache_clear()  # of a machine without a GPU
        yield
        environment.cache_clear()


def a_night(directory, total: int, sizes: Collection[int], watch: Watch | None = None) -> Night:
    """The speed at these batch sizes, and the memory at all."""
    (torch_part,) = [part for part in parts_of(ORDER, (16,)) if part.name == "torch"]
    chosen = tuple(each for each in torch_part.scenarios if each.id == MEMORY or each.batch_size in sizes)

    def measure(ids, hear):
        batches.measure(replace(ORDER, part="torch", scenarios=tuple(ids)), hear)

    machine = Part("control", CONTROL_SCENARIOS, lambda ids, hear: control.measure(ORDER, hear))
    beforehand = Night("2026-10-01T02:00:00Z", "1" * 40, Device("cuda"), left_out=["http", "vllm"])
    part = replace(torch_part, scenarios=chosen, measure=measure, missing="")
    with fake_cuda(total=total):
        plan = Plan(beforehand, [part], [machine], directory, directory / "history")
        return run_night(plan, lambda line: None, watch)[0]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return a_night(tmp_path_factory.mktemp("night"), 8 * GIB, (8, 16), Watch(lambda: [TRAINER._replace(gpu="another")]))


def test_it_is_clean_on_its_gpu_whoever_is_on_another_one(night: Night) -> None:
    assert [why for why in night.why_not if "the control moved" not in why] == []
    assert night.device == Device("cuda", "Fake GPU")
    assert night.environment["gpu uuid"] == "fake"


@pytest.mark.parametrize("size", BATCH_SIZES)
def test_what_the_allocator_says_stands_beside_the_prediction_in_rounds(night: Night, size: int) -> None:
    memory = series_of(night.records)[MEMORY]
    allocated = memory[f"CUDA peak allocated, batch {size}"].figures
    assert len(allocated) == len(memory[f"tokens a second, batch {size}"].figures) == 3
    assert min(memory[f"CUDA peak reserved, batch {size}"].figures) >= max(allocated)
    assert 0.85 < memory[f"measured over predicted, batch {size}"].middle < 1.05


def test_the_summary_has_its_table(night: Night) -> None:
    text = summary(night, None)
    assert "| batch | predicted peak | measured peak | measured / predicted | reserved | tokens/s |" in text
    assert "the most that torch had allocated, without the CUDA context" in text


def test_a_batch_that_takes_more_is_told(night: Night) -> None:
    metric = "CUDA peak allocated, batch 8"
    worse = [replace(each, value=2 * each.value) if metric in each.metric else each for each in night.records]
    findings = compare(replace(night, records=worse), [night])
    assert metric in {each.metric for each in findings if each.outcome == "fail"}


def test_a_batch_that_does_not_fit_is_told_and_smaller_ones_are_kept(tmp_path) -> None:
    night = a_night(tmp_path, 10 * MIB, (1, 16))
    speed = series_of(night.records)
    assert "torch/self-16/16 does not fit the memory" in night.notes
    assert "samples a second" in speed["torch/self-1/16"]
    assert "torch/self-16/16" not in speed
    assert [why for why in night.why_not if "the control moved" not in why] == []
    memory = series_of(night.records)[MEMORY]
    assert "CUDA peak allocated, batch 4" in memory
    assert "CUDA peak allocated, batch 8" not in memory
    assert re.search(r"\| 16 \| \S+ MiB \| does not fit \|", summary(night, None))


def test_before_its_first_figure_the_control_has_brought_the_gpu_to_its_clock(cuda: Cuda) -> None:
    waited: list[int] = []

    def hear(message: dict) -> None:
        if any(record["scenario"] == NIGHTLY_CONTROL.id for record in message.get("records", ())):
            waited.append(cuda.synchronisations)

    control.measure(ORDER, hear)
    assert waited[0] > 3, "many rounds of the same work"
    assert waited == list(range(waited[0], waited[0] + 3))


@pytest.mark.parametrize(("model", "data_type"), [("a model", torch.float16), ("", torch.float32)])
def test_the_control_multiplies_random_numbers_of_the_models_type(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, model: str, data_type: torch.dtype
) -> None:
    """Ones, or another type, draw less power than a model does: a GPU that throttles would not be seen."""
    multiplied: list[torch.Tensor] = []
    product = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda one, other: (multiplied.append(one), product(one, other))[1])
    control.matrix_products(replace(ORDER, model=model))()
    assert {each.dtype for each in multiplied} == {data_type}
    assert multiplied[0].cpu().unique().numel() > 100


def test_the_judge_is_timed_on_the_gpu(cuda: Cuda) -> None:
    heard: list[dict] = []
    budget.measure(replace(ORDER, part="probe"), heard.append)
    assert [message.keys() for message in heard] == [{"seconds a reply"}]
    assert heard[0]["seconds a reply"] > 0
    assert cuda.devices[0].peak_allocated > 0

"""The torch generator on a GPU that somebody else uses, too: where it works, what it leaves there, what it survives."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook, register_module_module_registration_hook

import rewardcore as rc
from rewardcore.local.torch_generator import TorchGenerator
from tests.cuda.devices import MIB, OUT_OF_MEMORY, SEGMENT, Cuda

SAMPLES = [rc.Sample("Why is the sky blue?", "short waves scatter more " * (number + 1)) for number in range(8)]
LONG = [rc.Sample("Why?", "short waves scatter more than long ones do " * 22) for _ in range(8)]


@pytest.fixture
def open_gpu(cuda: Cuda, tiny_judge: Path) -> Any:
    return lambda device="cuda", **options: TorchGenerator(
        tiny_judge, device=device, dtype="float32", max_new_tokens=40, **options
    )


def texts(generator: TorchGenerator, samples: list[rc.Sample] = SAMPLES, batch_size: Any = 4) -> list[str | None]:
    with rc.open_judge("self", generator, batch_size=batch_size) as judge:
        return [verdict.text for verdict in judge.judge(samples)]


@pytest.fixture
def expected(tiny_judge: Path) -> list[str | None]:
    return texts(TorchGenerator(tiny_judge, device="cpu", dtype="float32", max_new_tokens=40))


@pytest.mark.parametrize("batch_size", [4, "auto", None])
def test_a_gpu_writes_what_a_cpu_writes(expected: list[str], open_gpu: Any, batch_size: Any) -> None:
    assert texts(open_gpu(), batch_size=batch_size) == expected


def test_the_gpu_is_the_one_that_was_current_where_the_generator_was_made(cuda: Cuda, open_gpu: Any) -> None:
    """As every rank of torchrun does it: set_device, then "cuda". The judge works in a thread of its own."""
    torch.cuda.set_device(1)
    generator = open_gpu()
    currents = set()
    generator.model.register_forward_pre_hook(lambda *_: currents.add(torch.cuda.current_device()))
    cuda.devices[0].others = cuda.devices[0].total - MIB  # somebody else's: nothing would fit
    texts(generator, batch_size="auto")
    assert generator.device == torch.device("cuda:1")
    assert currents == {1}
    assert cuda.devices[0].peak_allocated == 0
    assert generator.recommend_batch_size(512) > 8
    with ThreadPoolExecutor(1) as other:
        assert other.submit(torch.cuda.current_device).result() == 0


@pytest.fixture
def observe() -> Iterator[list[Any]]:
    """Whenever the judge makes or runs a layer, another thread looks at what it would compute with."""

    def look() -> tuple[Any, ...]:
        randomness = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
        states = [bytes(state.tolist()) for state in randomness]
        return torch.ones(1).dtype, torch.cuda.current_device(), torch.zeros(1, device="cuda").device, *states

    seen: list[Any] = []
    with ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=(1,)) as trainer:

        def ask(module: Any, *_: Any) -> None:
            if len(seen) < 200 or type(module).__name__.endswith("ForCausalLM"):
                seen.append(trainer.submit(look).result())

        hooks = [register_module_module_registration_hook(ask), register_module_forward_pre_hook(ask)]
        yield seen
        for hook in hooks:
            hook.remove()


def test_whoever_trains_beside_a_judge_keeps_type_device_and_random_state(open_gpu: Any, observe: list[Any]) -> None:
    generator = open_gpu(temperature=1.0)
    generator.model.to(torch.bfloat16)
    torch.manual_seed(4)
    observe.clear()
    texts(generator, batch_size="auto")
    assert len(observe) > 200
    assert len(set(observe)) == 1
    assert observe[0][:3] == (torch.float32, 1, torch.device("cuda:1"))


def test_drawing_seeds_no_gpu(cuda: Cuda, open_gpu: Any) -> None:
    torch.manual_seed(4)
    before = cuda.seeded_all
    first, second = (texts(open_gpu(temperature=1.0, seed=3), SAMPLES[:2]) for _ in range(2))
    assert first == second
    assert cuda.seeded_all == before


def test_what_judging_took_is_given_back_before_the_result_is_there(cuda: Cuda, open_gpu: Any) -> None:
    (gpu, _), generator = cuda.devices, open_gpu()
    weights = gpu.allocated
    gpu.reset_peaks()
    gc.disable()
    try:
        with rc.open_judge("self", generator, batch_size=8) as judge:
            pending = judge.submit(LONG)
            assert {verdict.status for verdict in pending.result()} == {"ok"}
            left = gpu.allocated, gpu.reserved
    finally:
        gc.enable()
    assert gpu.peak_allocated > weights + 4 * SEGMENT, "else nothing would be proven"
    assert left == (weights, SEGMENT)


def test_a_batch_that_fails_leaves_nothing_either(cuda: Cuda, open_gpu: Any) -> None:
    (gpu, _), generator = cuda.devices, open_gpu()
    weights = gpu.allocated

    def fail(*_: Any) -> None:
        raise ValueError("as a model may")

    generator.model.model.norm.register_forward_pre_hook(fail)
    with rc.open_judge("self", generator, batch_size=8) as judge:
        assert {verdict.status for verdict in judge.judge(LONG)} == {"failed"}
        assert (gpu.allocated, gpu.reserved) == (weights, SEGMENT)
    assert gpu.peak_reserved > SEGMENT


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_out_of_memory_by_any_name_costs_only_time(
    cuda: Cuda, expected: list[str], open_gpu: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    generator = open_gpu()
    cuda.devices[0].refuse(above=MIB // 4, name=name)
    assert texts(generator, batch_size=8) == expected
    assert "out of memory with a batch of 8: at most 4 from here on" in caplog.text


def test_a_batch_that_does_not_fit_beside_the_trainer_is_halved_until_it_does(
    cuda: Cuda, open_gpu: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gpu, generator = cuda.devices[0], open_gpu()
    gpu.others = gpu.total - gpu.reserved - 4 * MIB
    with rc.open_judge("self", generator, batch_size=8) as judge:
        assert {verdict.status for verdict in judge.judge(LONG)} == {"ok"}
    assert "out of memory with a batch of 8" in caplog.text


def test_auto_fits_what_is_free_beside_the_trainer(cuda: Cuda, open_gpu: Any, caplog: pytest.LogCaptureFixture) -> None:
    gpu, generator = cuda.devices[0], open_gpu()
    gpu.others = gpu.total - gpu.reserved - 24 * MIB
    with rc.open_judge("self", generator, batch_size="auto") as judge:
        assert {verdict.status for verdict in judge.judge(LONG)} == {"ok"}
        assert 1 < judge.stats.requests < 8
    assert "out of memory" not in caplog.text


def test_a_live_model_judges_without_a_second_copy(cuda: Cuda, open_gpu: Any, expected: list[str]) -> None:
    own, (_, gpu) = open_gpu("cuda:1"), cuda.devices
    weights = gpu.allocated
    live = TorchGenerator(model=own.model.train(), tokenizer=own.tokenizer, max_new_tokens=40)
    assert texts(live) == expected
    assert live.device == torch.device("cuda:1")
    assert live.recommend_batch_size(512) > 8
    live.close()
    assert (gpu.allocated, gpu.reserved, cuda.devices[0].peak_allocated) == (weights, SEGMENT, 0)


def test_closing_gives_all_of_it_back(cuda: Cuda, open_gpu: Any) -> None:
    generator = open_gpu("cuda:1")
    texts(generator, SAMPLES[:2])
    generator.close()
    assert [(gpu.allocated, gpu.reserved) for gpu in cuda.devices] == [(0, 0), (0, 0)]

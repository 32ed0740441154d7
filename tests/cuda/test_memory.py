"""`rewardcore memory --measure` on a faked GPU: predicted first, then measured, and never on somebody else's GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rewardcore import ConfigurationError
from rewardcore.cli import app
from rewardcore.memory import measured
from rewardcore.memory.arguments import parse_arguments
from rewardcore.memory.model_config import load_model
from rewardcore.memory.neighbours import Process
from rewardcore.memory.predicted import FOLLOWED
from rewardcore.memory.report import run_memory
from tests.cuda.devices import GIB, MIB, OUT_OF_MEMORY, Cuda

TRAINER = Process("fake", 4712, "python3")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "processes", list)


def report(model: Path, lines: list[str], measure: bool = True) -> None:
    """The lines as they are printed: an exception keeps none of them back."""
    arguments = parse_arguments(
        model, prompt_tokens=64, new_tokens=8, batch_sizes="1,2,4", dtype="float32", measure=measure
    )
    run_memory(arguments, lines.append)


def test_what_is_measured_stands_beside_what_was_predicted(cuda: Cuda, tiny_judge: Path) -> None:
    lines: list[str] = []
    report(tiny_judge, lines)
    start = lines.index("measured on Fake GPU, in MiB")
    assert any("predicted peak" in line for line in lines[:start]), "first"
    assert "8.0 GiB (10% kept free): batch size" in lines[start - 2]
    assert any(f"predicted with the code of {FOLLOWED}" in line for line in lines[:start])
    assert lines[start + 2].split() == ["batch", "predicted", "peak", "measured", "peak", "reserved", "tokens/s"]
    rows = [line.split() for line in lines[start + 3 :]]
    assert [row[0] for row in rows] == ["1", "2", "4"]
    for _, predicted, peak, reserved, _ in rows:
        assert float(peak) == pytest.approx(float(predicted), rel=0.3, abs=1)
        assert float(reserved) >= float(peak)
    assert cuda.devices[0].allocated == 0, "nothing stays behind"


def test_without_the_flag_the_gpu_is_not_touched(cuda: Cuda, tiny_judge: Path) -> None:
    cuda.devices[0].others = cuda.devices[0].total
    lines: list[str] = []
    report(tiny_judge, lines, measure=False)
    assert any("predicted peak" in line for line in lines)
    assert not any("measured" in line for line in lines)
    assert cuda.devices[0].peak_allocated == 0


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_running_out_of_memory_keeps_what_was_measured_before(
    cuda: Cuda, tiny_judge: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one = measured._measure_one

    def third_fails(model: object, batch_size: int, *lengths: int) -> measured.Measured:
        if batch_size == 4:
            raise OUT_OF_MEMORY[name]()
        return one(model, batch_size, *lengths)

    monkeypatch.setattr(measured, "_measure_one", third_fails)
    lines: list[str] = []
    report(tiny_judge, lines)
    assert [line.split()[0] for line in lines[-3:]] == ["1", "2", "4"]
    assert lines[-1].endswith("does not fit")


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_weights_that_do_not_fit_are_told(cuda: Cuda, tiny_judge: Path, name: str) -> None:
    cuda.devices[0].refuse(name=name)
    lines: list[str] = []
    report(tiny_judge, lines)
    assert lines[-1] == "the weights do not fit"


@pytest.mark.parametrize(
    ("processes", "used", "says"),
    [
        ([TRAINER], 0, r"somebody else uses this one \(python3 \(pid 4712\), 0.0 of 8.0 GiB in use\)"),
        ([TRAINER._replace(gpu="another")], 0, ""),
        ([], 6 * GIB, r"\(a process unseen, 6.0 of 8.0 GiB in use\); wait until it is free, or choose another"),
        ([], 700 * MIB, ""),
    ],
)
def test_a_gpu_that_somebody_else_uses_is_never_filled(
    cuda: Cuda,
    tiny_judge: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: list[Process],
    used: int,
    says: str,
) -> None:
    monkeypatch.setattr(measured, "processes", lambda: processes)
    cuda.devices[0].others = used
    lines: list[str] = []
    if not says:
        report(tiny_judge, lines)
        assert lines[-1].split()[0] == "4"
        return
    with pytest.raises(ConfigurationError, match=says):
        report(tiny_judge, lines)
    assert any("predicted peak" in line for line in lines), "the prediction is told all the same"
    assert cuda.devices[0].peak_allocated == 0


def test_a_gpu_so_full_that_it_cannot_even_be_asked_is_somebody_elses(
    cuda: Cuda, tiny_judge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(device: int) -> None:
        raise OUT_OF_MEMORY["AcceleratorError"]()

    monkeypatch.setattr("torch.cuda.mem_get_info", asked)
    with pytest.raises(ConfigurationError, match=r"8\.0 of 8\.0 GiB in use"):
        report(tiny_judge, [])


def test_without_a_gpu_measuring_is_refused_after_the_prediction(tiny_judge: Path) -> None:
    lines: list[str] = []
    with pytest.raises(ConfigurationError, match=r"--measure needs a CUDA GPU, and torch \S+ sees none; .*doctor"):
        report(tiny_judge, lines)
    assert any("predicted peak" in line for line in lines)


def test_a_warm_up_comes_first_and_every_reply_has_its_full_length(
    cuda: Cuda, tiny_judge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(tiny_judge, torch.float32).to("cuda").eval()
    generate, shapes = model.generate, []

    def watched(**settings: Any) -> torch.Tensor:
        tokens = generate(**settings)
        shapes.append(tuple(tokens.shape))
        return tokens

    monkeypatch.setattr(model, "generate", watched)
    assert [seen.batch_size for seen in measured.measure(model, [1, 2], 16, 4)] == [1, 2]
    assert shapes == [(1, 17), (1, 20), (2, 20)]


def test_the_command_measures_where_it_is_told_to(
    cuda: Cuda, tiny_judge: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["memory", str(tiny_judge), "--batch-sizes", "1", "--prompt-tokens", "64", "--new-tokens", "8"]
    for flags, is_measured in (([], False), (["--measure"], True)):
        assert app([*command, *flags], standalone_mode=False) in (None, 0)
        assert ("measured on Fake GPU" in capsys.readouterr().out) is is_measured

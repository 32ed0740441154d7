"""What `rewardcore doctor` says of GPUs, with torch asked on a faked one."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rewardcore.cli import app
from rewardcore.cli import machine as reading
from tests.cuda.devices import GIB, MIB, OUT_OF_MEMORY, Cuda


@pytest.fixture
def asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is asked in this process: another one sees no GPU."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        out, error = io.StringIO(), ""
        with contextlib.redirect_stdout(out):
            try:
                exec(command[-1], {})  # the program that doctor hands to Python
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
        return subprocess.CompletedProcess(command, bool(error), out.getvalue(), error)

    monkeypatch.setattr(reading.subprocess, "run", run)


def lines_of(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    with contextlib.suppress(SystemExit):
        app(["doctor", "--cache", str(directory)], standalone_mode=False)
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in capsys.readouterr().out.splitlines() if line}


@pytest.mark.usefixtures("asked_here")
def test_each_gpu_is_named_with_its_room(cuda: Cuda, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cuda.devices[1].others = 8 * GIB - 100 * MIB
    found = lines_of(tmp_path, capsys)
    assert found["cuda:0"].startswith("ok       Fake GPU, 8.0 of 8.0 GiB free, CUDA 12.8")
    assert found["cuda:1"].startswith("warning  Fake GPU is full, 0.1 of 8.0 GiB free: see nvidia-smi for who uses it")


@pytest.mark.usefixtures("asked_here")
def test_a_gpu_so_full_that_it_cannot_be_asked_is_no_broken_torch(
    cuda: Cuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(device: int) -> tuple[int, int]:
        if device == 0:
            raise OUT_OF_MEMORY["AcceleratorError"]()
        return 8 * GIB, 8 * GIB

    monkeypatch.setattr("torch.cuda.mem_get_info", asked)
    found = lines_of(tmp_path, capsys)
    assert found["cuda:0"].startswith("warning  Fake GPU is full, 0.0 of 8.0 GiB free")
    assert found["cuda:1"].startswith("ok ")
    assert "cuda" not in found, "nothing is said of an import"

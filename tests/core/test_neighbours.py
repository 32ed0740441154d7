"""Who is on which GPU, by what nvidia-smi says."""

from pathlib import Path

import pytest

from rewardcore.memory.neighbours import Process, processes, shared_gpus

ONE, OTHER = "5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "8c9ab0e1-1111-2222-3333-444455556666"
GPUS = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-{ONE})
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-{OTHER})
"""
DIVIDED = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-{ONE})
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-{OTHER})
"""
LISTED = f"""\
GPU-{ONE}, 4711, /usr/bin/python3
GPU-{OTHER}, 4712, /opt/train, fast
"""
TRAINER = Process(OTHER, 4712, "/opt/train, fast")


@pytest.fixture(autouse=True)
def another_machine() -> None:
    shared_gpus.cache_clear()


@pytest.mark.parametrize(
    ("gpus", "listed", "found"),
    [
        (GPUS, LISTED, [Process(ONE, 4711, "/usr/bin/python3"), TRAINER]),
        (DIVIDED, LISTED, [TRAINER]),
        (GPUS, "", []),
        ("No devices were found", "No devices were found", []),
        (GPUS, "[N/A], [Insufficient Permissions], [N/A]", []),
    ],
)
def test_a_process_is_named_with_its_gpu_where_it_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: str, listed: str, found: list[Process]
) -> None:
    (tmp_path / "gpus").write_text(gpus)
    (tmp_path / "listed").write_text(listed)
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\ncase "$1" in -L) cat {tmp_path}/gpus;; *) cat {tmp_path}/listed;; esac\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert processes() == found


def test_without_nvidia_smi_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    assert processes() == []

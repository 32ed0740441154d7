"""Who is on which GPU, as nvidia-smi tells it: by the GPU's UUID, since its numbers are not CUDA's. Imports no torch.

Where nvidia-smi is missing, or shows no process, as in many containers, nobody can tell: the answer is empty. Nor can
it where a GPU is shared as MIG instances, since processes of all of them are listed as being on the one GPU.
"""

from __future__ import annotations

import functools
import re
import subprocess
from typing import Any, NamedTuple

_PROCESSES = ("--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader")


class Process(NamedTuple):
    gpu: str  # its UUID as torch writes it
    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def uuid_of(properties: Any) -> str:
    """Which GPU this is, of torch's properties of a device."""
    return str(properties.uuid).removeprefix("GPU-")


def nvidia_smi(*arguments: str) -> str:
    """What it says; nothing where there is nobody to ask."""
    try:
        return subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def processes() -> list[Process]:
    """Everybody who computes on a GPU of this machine and can be told apart."""
    return [process for process in read_processes(nvidia_smi(*_PROCESSES)) if process.gpu not in shared_gpus()]


def read_processes(listing: str) -> list[Process]:
    rows = [[cell.strip() for cell in line.split(",", 2)] for line in listing.splitlines()]
    return [Process(row[0].removeprefix("GPU-"), int(row[1]), row[2]) for row in rows if row[1:2] and row[1].isdigit()]


@functools.cache
def shared_gpus() -> set[str]:
    """The GPUs that are divided into MIG instances, which stand indented beneath their GPU. Nobody divides one that is
    in use, so that this is asked once.
    """
    shared, gpu = set(), ""
    for line in nvidia_smi("-L").splitlines():
        if found := re.match(r"GPU \d+: .*\(UUID: GPU-(.+)\)", line):
            gpu = found[1]
        elif line.lstrip().startswith("MIG "):
            shared.add(gpu)
    return shared

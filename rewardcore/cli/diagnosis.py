"""What is found out about a machine, and what it means for judging on it: `Machine` in, findings out, without IO.

A finding is `wrong` where judging cannot work, a `warning` where something will go badly, `ok`, or a `note`. Each one
that is not ok says what to do. machine.py reads a machine; doctor.py prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from ..http.settings import OTHER_FILES

State = Literal["ok", "note", "warning", "wrong"]
_GIB = 2**30
#: What a judge asks at once by default, and the most that max_concurrent="auto" goes up to.
_AT_ONCE, _AT_MOST = 60, 1024
_SHARED_MEMORY, _FREE_SPACE, _GPU_MEMORY = 1 * _GIB, 1 * _GIB, 1 * _GIB
_FOR_SHARED_MEMORY = ("ray", "vllm", "torch")
_NETWORK_FILES = re.compile(r"nfs\d?|cifs|smb\d?|lustre|gpfs|ceph|beegfs|9p|fuse\..*(?:ssh|s3|gcs)fs.*")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Finding(NamedTuple):
    what: str
    state: State
    says: str

    def __str__(self) -> str:
        return f"{self.what:<13} {self.state:<8} {self.says}"


class Package(NamedTuple):
    """What rewardcore asks of it: a version at least, and the extra that brings it; "" where it is always needed."""

    needs: str = ""
    extra: str = ""
    found: str | None = None


@dataclass(frozen=True)
class Torch:
    """What torch itself says; `error` where it could not be asked."""

    error: str = ""
    built_for: str | None = None  # CUDA's version; None for a CPU build
    devices: tuple[Mapping[str, Any], ...] = ()  # name, total, and free, or why that could not be asked (error)
    driver: str | None = None  # the kernel's module, where there is one


@dataclass(frozen=True)
class Machine:
    """As it was read; the defaults are a machine without any trouble."""

    now: float = 0.0
    installed_at: float = 0.0
    python: str = "3.11.0"
    rewardcore: str = ""
    packages: Mapping[str, Package] = field(default_factory=dict)
    torch: Torch | None = None
    cpus: float = 2.0
    file_limit: int | None = None
    hard_file_limit: int | None = None
    open_files: int = 0
    shared_memory: int | None = None  # bytes of /dev/shm; None where there is none
    cache_directory: str = "."
    cache_error: str = ""
    cache_free: int = 100 * _GIB
    cache_file_system: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    has_key: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)  # certificates and proxies, and nothing secret
    missing_files: tuple[str, ...] = ()  # variables that name a file or directory that is not there


def diagnose(machine: Machine) -> list[Finding]:
    return [
        Finding("python", "ok", f"{machine.python}, rewardcore {machine.rewardcore}"),
        *_packages(machine.packages),
        *_cuda(machine),
        Finding("cpus", *_cpus(machine.cpus)),
        *_files(machine),
        *_shared_memory(machine),
        Finding("cache", *_cache(machine)),
        _key(machine),
        *_environment(machine),
        Finding("clock", *_clock(machine)),
    ]


def _packages(packages: Mapping[str, Package]) -> Iterator[Finding]:
    absent = []
    for name, (needs, extra, found) in packages.items():
        fix = f"pip install 'rewardcore[{extra}]'" if extra else "pip install rewardcore again"
        if found is None and extra:
            absent.append(f"{name} (extra {extra})" if extra != name else name)
        elif found is None:
            yield Finding(name, "wrong", f"not installed, and nothing works without it: {fix}")
        elif needs and _numbers(found) < _numbers(needs):
            yield Finding(name, "warning" if extra else "wrong", f"{found} is older than {needs}: {fix}")
        else:
            yield Finding(name, "ok", found)
    if absent:
        yield Finding("not installed", "note", ", ".join(absent) + ": install the extras of those you need")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])


def _cuda(machine: Machine) -> Iterator[Finding]:
    torch = machine.torch
    if torch is None:
        return
    if torch.error:
        yield Finding("cuda", "wrong", f"torch is installed but cannot be imported ({torch.error}): install it again")
    elif torch.devices:
        for number, device in enumerate(torch.devices):
            yield Finding(f"cuda:{number}", *_gpu(device, torch))
    elif torch.built_for is None:
        fix = ", though this machine has a driver: install a CUDA build of torch" if torch.driver else ""
        yield Finding("cuda", "warning" if torch.driver else "note", f"torch is built for the CPU{fix}")
    elif torch.driver:
        yield Finding(
            "cuda",
            "warning",
            f"torch is built for CUDA {torch.built_for} and sees no device, though there is a driver ({torch.driver}):"
            " see CUDA_VISIBLE_DEVICES, and whether the driver is as new as that CUDA",
        )
    else:
        yield Finding("cuda", "note", f"torch is built for CUDA {torch.built_for}, and this machine has no driver")


def _gpu(device: Mapping[str, Any], torch: Torch) -> tuple[State, str]:
    name, error, free = device["name"], device.get("error", ""), device.get("free", 0)
    if error and "out of memory" not in error:
        return "wrong", f"{name} cannot be used ({error}): see nvidia-smi"
    memory = f"{free / _GIB:.1f} of {device['total'] / _GIB:.1f} GiB free"
    if free < _GPU_MEMORY:
        fix = "see nvidia-smi for who uses it, and wait, or choose another GPU with CUDA_VISIBLE_DEVICES"
        return "warning", f"{name} is full, {memory}: {fix}"
    driver = f", driver {torch.driver}" if torch.driver else ""
    return "ok", f"{name}, {memory}, CUDA {torch.built_for}{driver}"


def _cpus(cpus: float) -> tuple[State, str]:
    if cpus < 2:
        return "warning", f'{cpus:g}: a main thread that computes slows judging down, background="process" too'
    return "ok", f"{cpus:g}"


def _files(machine: Machine) -> Iterator[Finding]:
    if machine.file_limit is None:
        return
    places, wanted = machine.file_limit - machine.open_files - OTHER_FILES, _AT_MOST + machine.open_files + OTHER_FILES
    fix = f"`ulimit -n {wanted}` before the command"
    if machine.hard_file_limit is not None and machine.hard_file_limit < wanted:
        fix = f"ask whoever runs this machine for a hard limit of {wanted}; it is {machine.hard_file_limit}"
    if places < _AT_ONCE:
        state: State = "wrong"
        says = (
            f"{machine.file_limit}: at most {max(1, places)} requests at once, fewer than the usual {_AT_ONCE}; {fix}"
        )
    elif places < _AT_MOST:
        state = "warning"
        says = f"{machine.file_limit}: enough for {places} requests at once, of up to {_AT_MOST}; {fix}"
    else:
        state, says = "ok", f"{machine.file_limit}: enough for {_AT_MOST} requests at once"
    yield Finding("files", state, says)


def _shared_memory(machine: Machine) -> Iterator[Finding]:
    size = machine.shared_memory
    users = [name for name in _FOR_SHARED_MEMORY if (package := machine.packages.get(name)) and package.found]
    if size is None or not users:
        return
    says = f"{size / _GIB:.1f} GiB"
    if size < _SHARED_MEMORY:
        says += f" is little for {', '.join(users)} across processes: docker run --shm-size=8g, or --ipc=host"
    yield Finding("/dev/shm", "warning" if size < _SHARED_MEMORY else "ok", says)


def _cache(machine: Machine) -> tuple[State, str]:
    place, kind = machine.cache_directory, machine.cache_file_system
    if machine.cache_error:
        return "wrong", f"{place} cannot be written ({machine.cache_error}): put the cache elsewhere"
    if _NETWORK_FILES.fullmatch(kind):
        return (
            "warning",
            f"{place} is on {kind}, where SQLite files of several hosts break: put the cache on a local disk",
        )
    if machine.cache_free < _FREE_SPACE:
        return "warning", f"{place} has {machine.cache_free / _GIB:.2f} GiB left: make room, or put the cache elsewhere"
    return "ok", f"{place} can be written, {machine.cache_free / _GIB:.0f} GiB left"


def _key(machine: Machine) -> Finding:
    if machine.has_key:
        return Finding("key", "ok", f"{machine.api_key_env} is set")
    return Finding("key", "note", f"{machine.api_key_env} is not set: export it where the endpoint wants a key")


def _environment(machine: Machine) -> Iterator[Finding]:
    proxies = [name for name in machine.environment if name.upper() in _PROXIES]
    if proxies:
        are = "are" if len(proxies) > 1 else "is"
        says = f"{', '.join(proxies)} {are} set and not used: where a gateway is needed, name it as the base URL"
        yield Finding("proxies", "warning", says)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        if name in machine.missing_files:
            says = f"{machine.environment[name]} does not exist: mend the variable, or unset it"
            yield Finding(name, "wrong", says)
        elif name in machine.environment:
            yield Finding(name, "ok", machine.environment[name])


def _clock(machine: Machine) -> tuple[State, str]:
    shown = f"{datetime.fromtimestamp(machine.now, UTC):%Y-%m-%d %H:%M} UTC"
    if machine.now < machine.installed_at - 86_400:
        return "wrong", f"{shown} is before rewardcore was installed: set it, or certificates will be refused"
    return "ok", shown

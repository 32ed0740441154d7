"""What `rewardcore doctor` finds, by the machine; and the command around it."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rewardcore.cli import machine as reading
from rewardcore.cli.diagnosis import Machine, Package, Torch, diagnose
from rewardcore.testing import SimulatedServer
from tests import commands

GIB = 2**30
GPU = {"name": "H100", "free": 70 * GIB, "total": 80 * GIB}
FULL = {"name": "H100", "total": 80 * GIB}
FINE = Machine(
    now=2e9,
    installed_at=1.9e9,
    rewardcore="0.1.0",
    packages={"aiohttp": Package("3.12", "", "3.14.5"), "torch": Package("2.6", "torch", "2.13.0+cpu")},
    torch=Torch(built_for="12.8", devices=(GPU,), driver="570.1"),
    cpus=16,
    file_limit=4096,
    hard_file_limit=4096,
    shared_memory=64 * GIB,
)


def test_a_machine_without_trouble_is_ok_in_every_line() -> None:
    assert {finding.state for finding in diagnose(FINE)} == {"ok"}
    shown = "\n".join(map(str, diagnose(FINE)))
    assert "cuda:0        ok       H100, 70.0 of 80.0 GiB free, CUDA 12.8, driver 570.1" in shown


@pytest.mark.parametrize(
    ("changes", "what", "state", "says"),
    [
        ({"packages": {"httpx": Package("0.27", "", None)}}, "httpx", "wrong", "nothing works without it: pip install"),
        ({"packages": {"httpx": Package("0.27", "", "0.9.9")}}, "httpx", "wrong", "0.9.9 is older than 0.27"),
        (
            {"packages": {"trl": Package("1.16", "trl", "1.9.1")}},
            "trl",
            "warning",
            "1.9.1 is older than 1.16: pip install 'rewardcore[trl]'",
        ),
        ({"packages": {"trl": Package("1.16", "trl", "1.16.0rc1")}}, "trl", "ok", "1.16.0rc1"),
        (
            {"packages": {"trl": Package("", "trl"), "transformers": Package("5", "torch")}},
            "not installed",
            "note",
            "trl, transformers (extra torch): install the extras of those you need",
        ),
        ({"torch": Torch("ImportError: libcudart.so")}, "cuda", "wrong", "cannot be imported (ImportError: libcudart"),
        ({"torch": Torch(driver="570.1")}, "cuda", "warning", "has a driver: install a CUDA build of torch"),
        ({"torch": Torch()}, "cuda", "note", "torch is built for the CPU"),
        ({"torch": Torch(built_for="12.8")}, "cuda", "note", "no driver"),
        ({"torch": Torch(built_for="12.8", driver="5")}, "cuda", "warning", "sees no device"),
        (
            {"torch": Torch(built_for="12.8", devices=({**GPU, "free": 2**28},))},
            "cuda:0",
            "warning",
            "H100 is full, 0.2 of 80.0 GiB free: see nvidia-smi for who uses it, and wait, or choose another GPU",
        ),
        (
            {"torch": Torch(built_for="12.8", devices=({**FULL, "error": "CUDA error: out of memory"},))},
            "cuda:0",
            "warning",
            "H100 is full, 0.0 of 80.0 GiB free",
        ),
        (
            {"torch": Torch(built_for="12.8", devices=({**FULL, "error": "CUDA error: busy or unavailable"},))},
            "cuda:0",
            "wrong",
            "H100 cannot be used (CUDA error: busy or unavailable): see nvidia-smi",
        ),
        ({"cpus": 1.0}, "cpus", "warning", "1: a main thread that computes slows judging down"),
        (
            {"file_limit": 64},
            "files",
            "wrong",
            "at most 32 requests at once, fewer than the usual 60; `ulimit -n 1056`",
        ),
        ({"file_limit": 1024, "open_files": 8}, "files", "warning", "enough for 984 requests at once, of up to 1024"),
        ({"file_limit": 1024, "hard_file_limit": 1024}, "files", "warning", "for a hard limit of 1056; it is 1024"),
        ({"shared_memory": 64 * 2**20}, "/dev/shm", "warning", "0.1 GiB is little for torch across processes: docker"),
        ({"cache_error": "Read-only file system"}, "cache", "wrong", "cannot be written (Read-only file system)"),
        ({"cache_file_system": "nfs4"}, "cache", "warning", "is on nfs4, where SQLite files of several hosts break"),
        ({"cache_free": 2**20}, "cache", "warning", "has 0.00 GiB left: make room"),
        ({"has_key": False}, "key", "note", "OPENAI_API_KEY is not set: export it"),
        ({"environment": {"https_proxy": "http://p"}}, "proxies", "warning", "https_proxy is set and not used"),
        (
            {"environment": {"SSL_CERT_FILE": "/a.pem"}, "missing_files": ("SSL_CERT_FILE",)},
            "SSL_CERT_FILE",
            "wrong",
            "/a.pem does not exist: mend the variable, or unset it",
        ),
        ({"environment": {"SSL_CERT_FILE": "/a.pem"}}, "SSL_CERT_FILE", "ok", "/a.pem"),
        ({"now": 0.0}, "clock", "wrong", "1970-01-01 00:00 UTC is before rewardcore was installed: set it"),
    ],
)
def test_a_trouble_is_named_with_what_to_do(changes: dict[str, object], what: str, state: str, says: str) -> None:
    (found,) = [finding for finding in diagnose(replace(FINE, **changes)) if finding.what == what]
    assert (found.state, says in found.says) == (state, True), found
    others = {finding.state for finding in diagnose(replace(FINE, **changes)) if finding.what != what}
    assert others == {"ok"}, "and nothing else is found fault with"


@pytest.mark.parametrize("absent", ["torch", "file_limit", "shared_memory"])
def test_what_is_not_there_is_not_spoken_of(absent: str) -> None:
    assert {finding.state for finding in diagnose(replace(FINE, **{absent: None}))} == {"ok"}


def test_a_broken_torch_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(reading, "_ASK_TORCH", "raise ImportError('libtorch.so: no such file')")
    assert reading._ask_torch(told.append).error == "ImportError: libtorch.so: no such file"
    monkeypatch.setattr(reading, "_ASK_TORCH", "import os; os.abort()")
    assert reading._ask_torch(told.append).error == "exit code -6"
    monkeypatch.setattr(reading, "_ASK_TORCH", "print('a warning'); print('{\"built_for\": null, \"devices\": []}')")
    assert reading._ask_torch(told.append) == Torch(driver=reading._driver())
    assert told == ["asking torch for its devices …"] * 3


FULL_GPU = """
class version: cuda = "12.8"
class cuda:
    is_available, device_count = lambda: True, lambda: 2
    class get_device_properties:
        def __init__(self, number): self.name, self.total_memory = "H100", 80 * 2**30
    def mem_get_info(number):
        if number: raise RuntimeError("CUDA error: out of memory\\nSearch for `cudaErrorMemoryAllocation' in ...")
        return 2**30, 80 * 2**30
"""


def test_a_full_gpu_hides_neither_its_name_nor_the_one_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(FULL_GPU)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = reading._ask_torch(lambda doing: None)
    assert found.error == ""
    assert found.devices == ({**FULL, "free": GIB}, {**FULL, "error": "CUDA error: out of memory"})


def doctor(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return commands.rewardcore("doctor", *arguments, env=os.environ | environment)


def test_the_command_ends_with_1_when_something_is_wrong_and_says_so_in_json(tmp_path: Path) -> None:
    done = doctor("--json", "--cache", str(tmp_path / "none" / "judge.sqlite"), SSL_CERT_FILE=str(tmp_path / "no.pem"))
    assert done.returncode == 1
    document = json.loads(done.stdout.splitlines()[-1])
    states = {finding["what"]: finding["state"] for finding in document["findings"]}
    assert document["ok"] is False
    assert (states["cache"], states["SSL_CERT_FILE"], states["aiohttp"]) == ("wrong", "wrong", "ok")
    assert "cache         wrong" in done.stderr, "people read it there"


def test_a_sound_machine_ends_with_0(tmp_path: Path) -> None:
    done = doctor("--cache", str(tmp_path), OPENAI_API_KEY="sk-never-shown")
    assert (done.returncode, done.stderr) == (0, "")
    assert "key           ok       OPENAI_API_KEY is set" in done.stdout
    assert "never-shown" not in done.stdout


def test_quietly_it_tells_of_trouble_alone(tmp_path: Path) -> None:
    done = doctor("--quiet", "--cache", str(tmp_path), SSL_CERT_FILE="/none.pem", https_proxy="http://p")
    assert (done.returncode, done.stdout) == (1, "")
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("cpus", "files", "/dev/shm"))]
    assert [line.split()[:2] for line in lines] == [["proxies", "warning"], ["SSL_CERT_FILE", "wrong"]]


def test_an_endpoint_is_asked_where_one_is_named() -> None:
    done = doctor("http://127.0.0.1:9/v1", "--model", "judge")
    assert done.returncode == 1
    assert "reachable     wrong    no connection to 127.0.0.1:9" in done.stdout
    assert "1 wrong, " in done.stdout


def test_an_endpoint_that_judges_is_ok() -> None:
    with SimulatedServer(model="judge") as server:
        done = doctor(server.base_url, "--model", "judge")
    assert "sample        ok       score" in done.stdout
    assert done.stdout.count("\nkey ") == 1
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["http://127.0.0.1:9/v1"], "needs both URL and --model"),
        (["--model", "judge"], "needs both URL and --model"),
        (["http://127.0.0.1:9/v1", "--model", "judge", "--seconds", "nan"], "--seconds must be above 0"),
        (["--api-key-env", "sk-never-shown"], "--api-key-env must be the name of a variable, as OPENAI_API_KEY, not"),
        (["http://127.0.0.1:9", "--model", "judge"], "most endpoints want http://127.0.0.1:9/v1"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(arguments: list[str], says: str) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "never-shown" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1

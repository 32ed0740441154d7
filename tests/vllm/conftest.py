"""One real server for all tests of this folder: it takes half a minute to start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewardcore as rc

# On a CPU a block of the prefix cache has 128 tokens, of which such prompts have few.
ARGUMENTS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--block-size", "32"]


@pytest.fixture(scope="session")
def vllm_server(tiny_judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rc.VllmServer]:
    """It serves the tiny judge as `judge`; when it is stopped, none of its processes is left."""
    server = rc.VllmServer(tiny_judge, "judge", port=0, log_dir=tmp_path_factory.mktemp("logs"), arguments=ARGUMENTS)
    with server:
        yield server
        names = processes_of(server.port)
    assert any("EngineCore" in name for name in names.values()), names
    assert not {pid: name for pid, name in names.items() if Path(f"/proc/{pid}").exists()}


@pytest.fixture(scope="session")
def endpoint(vllm_server: rc.VllmServer) -> rc.Endpoint:
    return vllm_server.endpoint


def processes_of(port: int) -> dict[int, str]:
    """Whoever is in the session of the server on this port, by what it calls itself."""
    commands = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                commands[int(entry.name), os.getsid(int(entry.name))] = (entry / "cmdline").read_text()
    sessions = {session for (_, session), command in commands.items() if f"\0--port\0{port}\0" in command}
    return {pid: command.replace("\0", " ") for (pid, session), command in commands.items() if session in sessions}

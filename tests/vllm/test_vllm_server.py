"""A real vLLM server, started, used and stopped by VllmServer: one for all tests here."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewardcore as rc
from bench import prefix_cache
from rewardcore.failures import ServerFailed

CHOICES = ["<score>7</score>", "<score>3</score>"]
# On a CPU a block of the prefix cache has 128 tokens, of which such prompts have few.
ARGUMENTS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--block-size", "32"]


@pytest.fixture(scope="session")
def server(tiny_judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rc.VllmServer]:
    server = rc.VllmServer(tiny_judge, "judge", port=0, log_dir=tmp_path_factory.mktemp("logs"), arguments=ARGUMENTS)
    with server:
        yield server


@pytest.fixture(scope="session")
def endpoint(server: rc.VllmServer) -> rc.Endpoint:
    return server.endpoint


def processes_of(server: rc.VllmServer) -> dict[int, str]:
    """Whoever is in the session of the server, by what it calls itself."""
    commands = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                commands[int(entry.name), os.getsid(int(entry.name))] = (entry / "cmdline").read_text()
    sessions = {session for (_, session), command in commands.items() if f"\0--port\0{server.port}\0" in command}
    return {pid: command.replace("\0", " ") for (pid, session), command in commands.items() if session in sessions}


def test_sixteen_samples_are_judged_over_a_real_server(endpoint: rc.Endpoint) -> None:
    endpoint = dataclasses.replace(endpoint, max_tokens=32, extra_body={"structured_outputs": {"choice": CHOICES}})
    samples = [rc.Sample(f"What is {number} times two?", "It is " + "more " * number) for number in range(16)]
    with rc.open_judge("asyncio", endpoint) as judge:
        verdicts = judge.judge(samples)
        assert judge.stats.requests == 16
    assert [verdict.status for verdict in verdicts] == ["ok"] * 16
    assert {verdict.text for verdict in verdicts} <= set(CHOICES)
    assert {verdict.score for verdict in verdicts} <= {(7 - 1) / 9, (3 - 1) / 9}


def test_the_tiny_judge_scores_without_being_forced(endpoint: rc.Endpoint) -> None:
    endpoint = dataclasses.replace(endpoint, max_tokens=48)
    with rc.open_judge("asyncio", endpoint) as judge:
        verdicts = judge.judge([rc.Sample("Why is the sky blue?", "Short waves scatter most. " * 3)])
    assert [verdict.status for verdict in verdicts] == ["ok"]


def test_the_responses_to_one_prompt_are_served_from_the_prefix_cache(endpoint: rc.Endpoint) -> None:
    """By the server's own counters; seven of eight could be, up to where the response begins: 53 % of such requests."""
    found = prefix_cache.measure(dataclasses.replace(endpoint, max_tokens=1), most_words=60, n=64)
    assert found["now"] > 0.45
    assert found["before"] < 0.15


@pytest.mark.parametrize(
    ("path", "says"),
    [("/v1", "not judged: .*404"), ("/health/v1", "/health/metrics cannot be read, as vLLM's can: .*404")],
)
def test_what_cannot_be_measured_is_one_sentence(
    endpoint: rc.Endpoint, capsys: pytest.CaptureFixture[str], path: str, says: str
):
    base_url = endpoint.base_url.removesuffix("/v1") + path
    assert prefix_cache.main(["--base-url", base_url, "--model", "another"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"bench.prefix_cache: .*{says}.*", line)


def test_what_vllm_refuses_is_told_at_once_with_its_own_words(tiny_judge: Path, tmp_path: Path) -> None:
    server = rc.VllmServer(tiny_judge, port=0, log_dir=tmp_path, arguments=["--dtipe", "float32"], progress=False)
    with pytest.raises(ServerFailed, match=r"exit code 2\): error: unrecognized arguments: --dtipe.*; mend arguments"):
        server.start()


def test_stopping_leaves_no_process_behind(server: rc.VllmServer) -> None:
    """Last, since it stops the server of all tests here."""
    names = processes_of(server)
    assert any("EngineCore" in name for name in names.values()), names
    server.stop()
    assert not server.alive
    assert not any(Path(f"/proc/{pid}").exists() for pid in names)

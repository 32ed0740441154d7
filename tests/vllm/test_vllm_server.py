import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import rewardcore as rc
from bench import prefix_cache

CHOICES = ["<score>7</score>", "<score>3</score>"]
START_SECONDS = 300.0


@pytest.fixture(scope="module")
def server_url(tiny_judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "vllm.log"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(tiny_judge)]
    command += ["--served-model-name", "judge", "--host", "127.0.0.1", "--port", str(port)]
    # On a CPU a block of the prefix cache has 128 tokens, of which such prompts have few.
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "512", "--block-size", "32"]
    with log.open("wb") as output, running(command, output.fileno()) as process:
        wait_until_healthy(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def running(command: list[str], output: int) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        with contextlib.suppress(ProcessLookupError):  # the engine is a process of its own in the same group
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_healthy(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    pause = threading.Event()
    for _ in range(int(START_SECONDS * 4)):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as reply:
            if reply.status == 200:
                return
        pause.wait(0.25)
    pytest.fail(f"the vLLM server did not start; the end of its log:\n{log.read_text()[-4000:]}")


def test_sixteen_samples_are_judged_over_a_real_server(server_url: str) -> None:
    endpoint = rc.Endpoint(
        server_url, model="judge", max_tokens=32, extra_body={"structured_outputs": {"choice": CHOICES}}
    )
    samples = [rc.Sample(f"What is {number} times two?", "It is " + "more " * number) for number in range(16)]
    with rc.open_judge("asyncio", endpoint) as judge:
        verdicts = judge.judge(samples)
        assert judge.stats.requests == 16
    assert [verdict.status for verdict in verdicts] == ["ok"] * 16
    assert {verdict.text for verdict in verdicts} <= set(CHOICES)
    assert {verdict.score for verdict in verdicts} <= {(7 - 1) / 9, (3 - 1) / 9}


def test_the_tiny_judge_scores_without_being_forced(server_url: str) -> None:
    endpoint = rc.Endpoint(server_url, model="judge", max_tokens=48)
    with rc.open_judge("asyncio", endpoint) as judge:
        verdicts = judge.judge([rc.Sample("Why is the sky blue?", "Short waves scatter most. " * 3)])
    assert [verdict.status for verdict in verdicts] == ["ok"]


def test_the_responses_to_one_prompt_are_served_from_the_prefix_cache(server_url: str) -> None:
    """By the server's own counters; seven of eight could be, up to where the response begins: 53 % of such requests."""
    endpoint = rc.Endpoint(server_url, model="judge", max_tokens=1)
    found = prefix_cache.measure(endpoint, most_words=60, n=64)
    assert found["now"] > 0.45
    assert found["before"] < 0.15


@pytest.mark.parametrize(
    ("path", "says"),
    [("/v1", "not judged: .*404"), ("/health/v1", "/health/metrics cannot be read, as vLLM's can: .*404")],
)
def test_what_cannot_be_measured_is_one_sentence(
    server_url: str, capsys: pytest.CaptureFixture[str], path: str, says: str
):
    base_url = server_url.removesuffix("/v1") + path
    assert prefix_cache.main(["--base-url", base_url, "--model", "another"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"bench.prefix_cache: .*{says}.*", line)

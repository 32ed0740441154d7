"""A real vLLM server, which VllmServer has started, and will stop."""

import dataclasses
import re
from pathlib import Path

import pytest

import rewardcore as rc
from bench import prefix_cache
from rewardcore.failures import ServerFailed

CHOICES = ["<score>7</score>", "<score>3</score>"]


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

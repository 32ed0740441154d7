"""What a real vLLM server serves from its prefix cache: `python -m bench.prefix_cache --base-url URL --model NAME`.

32 prompts × 8 responses, judged with QUALITY as it was (a token of everything in its first line) and as it is, on texts
that the server has not seen. The figures are the server's own counters in /metrics, so nobody else should use it
meanwhile. It caches whole blocks of tokens: the smaller its --block-size, the nearer it comes to `bench.prefix_share`.
"""

from __future__ import annotations

import argparse
import logging
import re
import secrets
import sys
import urllib.request
from dataclasses import replace

import rewardcore
from bench.endpoint_flags import add_endpoint_flags, parse
from bench.prefix_share import token_first
from bench.scenarios import REGISTRY, Scenario, groups_of
from rewardcore import Endpoint, Sample, Verdict
from rewardcore.rubrics import QUALITY, TemplateRubric

SCENARIO = REGISTRY["prefix-quality"]
FORMS = {"before": token_first(QUALITY), "now": QUALITY}
COUNTERS = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")


def counters(base_url: str) -> tuple[float, float]:
    """(queried, hit) tokens since the server started, over all its engines."""
    url = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            text = reply.read().decode()
    except (OSError, ValueError) as error:
        raise RuntimeError(f"--base-url: {url} cannot be read, as vLLM's can: {error}") from error
    found = [re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE) for name in COUNTERS]
    if not all(found):
        raise RuntimeError(f"--base-url: {url} has no {' and no '.join(COUNTERS)}; this reads vLLM's own counters")
    queried, hit = (sum(map(float, values)) for values in found)
    return queried, hit


def hit_share(endpoint: Endpoint, rubric: TemplateRubric, scenario: Scenario, most_words: int) -> float:
    """Of the tokens that the server looked up while it judged, the share that was there; the frame is warm."""
    samples = [sample for group in groups_of(scenario, most_words) for sample in group]
    with rewardcore.open_judge("asyncio", endpoint, rubric=rubric, cache=None) as judge:
        _check(judge.judge([Sample("Is anybody there?", "Yes.")]))
        queried_before, hit_before = counters(endpoint.base_url)
        _check(judge.judge(samples))
        queried, hit = counters(endpoint.base_url)
    if queried == queried_before:
        raise RuntimeError("the server looked nothing up; start it with --enable-prefix-caching")
    return (hit - hit_before) / (queried - queried_before)


def _check(verdicts: list[Verdict]) -> None:
    if failures := [verdict for verdict in verdicts if verdict.status in ("failed", "timeout")]:
        raise RuntimeError(f"{len(failures)} of {len(verdicts)} were not judged: {failures[0].error}")


def measure(endpoint: Endpoint, most_words: int = 400, n: int = SCENARIO.n) -> dict[str, float]:
    """The hit share of every form, each on texts of its own."""
    counters(endpoint.base_url)  # or a judge would wait for a server that is not up
    return {
        name: hit_share(endpoint, rubric, replace(SCENARIO, n=n, seed=secrets.randbits(64)), most_words)
        for name, rubric in FORMS.items()
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.prefix_cache",
        description="The hit share of a vLLM server's prefix cache, before and now.",
    )
    add_endpoint_flags(parser.add_argument, max_tokens=8)
    parser.add_argument(
        "--words", type=int, default=400, help="at most, in a prompt; fewer for a short context (%(default)s)"
    )
    options, endpoint = parse(parser, arguments)
    logging.getLogger("rewardcore").setLevel(logging.ERROR)  # replies that are cut short are meant here
    if options.words < 10:
        parser.error(f"--words takes a whole number of 10 or more, not {options.words}")
    try:
        found = measure(endpoint, options.words)
    except (RuntimeError, rewardcore.RewardcoreError) as error:
        print(f"bench.prefix_cache: {error}", file=sys.stderr)
        return 1
    for name, hits in found.items():
        print(f"{name:8} {hits:7.1%} of the prompt tokens came from the server's prefix cache")
    return 0


if __name__ == "__main__":
    sys.exit(main())

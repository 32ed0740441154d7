"""One client in a process of its own: `python -m bench.client_child CLIENT BASE_URL`, a round for each line on stdin.

A round asks for every body and prints CPU seconds per sample and a digest of the texts. So every client has a heap
and an event loop to itself, and what one leaves running (litellm has a task that never ends) disturbs no other.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable

import rewardcore
from bench.client_cost import CONCURRENCY, OURS, SCENARIO
from bench.peers import PEERS
from bench.scenarios import samples_of
from rewardcore import Endpoint, Sample
from rewardcore.clock import SYSTEM_CLOCK
from rewardcore.http.request import RequestBuilder
from rewardcore.rubrics import QUALITY


def judging(endpoint: Endpoint, samples: list[Sample]) -> Callable[[], list[str]]:
    judge = rewardcore.open_judge("asyncio", endpoint, max_concurrent=CONCURRENCY, cache=None)
    return lambda: [verdict.text for verdict in judge.judge(samples)]


def asking(client: str, endpoint: Endpoint, samples: list[Sample]) -> Callable[[], list[str]]:
    """The same bodies, built beforehand, on the kind of loop that ours runs on."""
    build = RequestBuilder(endpoint, QUALITY).build
    bodies, loop = [build(sample).body for sample in samples], SYSTEM_CLOCK.new_event_loop()
    asyncio.set_event_loop(loop)
    return lambda: loop.run_until_complete(PEERS[client](endpoint, bodies, CONCURRENCY))


def main(client: str, base_url: str, count: int) -> None:
    endpoint, samples = Endpoint(base_url, model="judge"), samples_of(SCENARIO)[:count]
    work = judging(endpoint, samples) if client == OURS else asking(client, endpoint, samples)
    work()  # imports and first connections
    print("ready", flush=True)
    for _ in sys.stdin:
        before = time.process_time()
        texts = work()
        cpu = (time.process_time() - before) / count
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        print(json.dumps({"cpu": cpu, "digest": digest}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

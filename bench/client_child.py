"""One client in a process of its own, told on stdin what to do: `python -m bench.client_child CLIENT BASE_URL SAMPLES`.

`warm up` asks a few; `measure` asks all, and prints CPU seconds per sample and a digest of the texts. So every client
has a heap and an event loop to itself, and what one leaves running (litellm's task never ends) disturbs no other.
"""

from __future__ import annotations

import asyncio
import contextlib
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

#: Samples → their texts.
Work = Callable[[list[Sample]], list[str]]


def judging(endpoint: Endpoint) -> Work:
    judge = rewardcore.open_judge("asyncio", endpoint, max_concurrent=CONCURRENCY, cache=None)
    return lambda samples: [verdict.text for verdict in judge.judge(samples)]


def asking(client: str, endpoint: Endpoint, samples: list[Sample]) -> Work:
    """The same bodies, built beforehand, on the kind of loop that ours runs on; opened once, and never closed."""
    build = RequestBuilder(endpoint, QUALITY).build
    bodies, loop = [build(sample).body for sample in samples], SYSTEM_CLOCK.new_event_loop()
    asyncio.set_event_loop(loop)
    open_for_good = contextlib.AsyncExitStack()
    ask = loop.run_until_complete(open_for_good.enter_async_context(PEERS[client].open(endpoint)))

    def ask_first(samples: list[Sample], _: object = open_for_good) -> list[str]:  # held, or it would be closed
        return loop.run_until_complete(ask(bodies[: len(samples)], CONCURRENCY))

    return ask_first


def main(client: str, base_url: str, count: int) -> None:
    endpoint, samples = Endpoint(base_url, model="judge"), samples_of(SCENARIO)[:count]
    work = judging(endpoint) if client == OURS else asking(client, endpoint, samples)
    work(samples)  # imports
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "warm up":
            work(samples[: 2 * CONCURRENCY])
            print("warm", flush=True)
            continue
        before = time.process_time()
        texts = work(samples)
        cpu = (time.process_time() - before) / count
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        print(json.dumps({"cpu": cpu, "digest": digest}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))

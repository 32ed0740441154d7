"""One client's cold start, in a process of its own: `python -m bench.cold_start_child CLIENT BASE_URL SAMPLES`.

Prints CPU seconds for import, first batch and second batch as a JSON line. It imports nothing before the clock runs.
"""

import json
import os
import sys
import time
from collections.abc import Callable

stages: dict[str, float] = {}


def timed(stage: str, work: Callable[[], object]) -> None:
    before = time.process_time()
    work()
    stages[stage] = time.process_time() - before


def judge(mode: str, base_url: str, n: int) -> None:
    timed("import", lambda: __import__("rewardcore"))
    import rewardcore

    endpoint = rewardcore.Endpoint(base_url, model="judge")
    first, second = [[rewardcore.Sample(f"{batch}", f"{i}") for i in range(n)] for batch in range(2)]
    opened: list[rewardcore.Judge] = []

    def open_and_judge() -> None:  # opening is part of the first batch: that is when the client is imported
        opened.append(rewardcore.open_judge(mode, endpoint))  # type: ignore[call-overload]
        opened[0].judge(first)

    timed("first batch", open_and_judge)
    timed("second batch", lambda: opened[0].judge(second))
    opened[0].close()


def ask_peer(client: str, base_url: str, n: int) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing leaves the machine
    timed("import", lambda: __import__(client))
    import asyncio

    from bench.peers import PEERS, Ask
    from rewardcore import Endpoint

    endpoint = Endpoint(base_url, model="judge")
    loop = asyncio.new_event_loop()
    opened = PEERS[client].open(endpoint)
    asks: list[Ask] = []
    first, second = [
        [
            json.dumps({"model": "judge", "messages": [{"role": "user", "content": f"{batch} {i}"}]}).encode()
            for i in range(n)
        ]
        for batch in range(2)
    ]

    def open_and_ask() -> None:  # as above
        asks.append(loop.run_until_complete(opened.__aenter__()))
        loop.run_until_complete(asks[0](first, 60))

    timed("first batch", open_and_ask)
    timed("second batch", lambda: loop.run_until_complete(asks[0](second, 60)))


if __name__ == "__main__":
    client, base_url, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if client.startswith("rewardcore "):
        judge(client.removeprefix("rewardcore "), base_url, n)
    else:
        ask_peer(client, base_url, n)
    print(json.dumps(stages), flush=True)
    os._exit(0)  # a client's threads and tasks may outlive its work

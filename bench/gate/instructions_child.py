"""In a revision's environment, under valgrind: each scenario at 16 and at 48 samples, in forked children.

They are forked from one process that has imported everything, so that both sizes inherit the same count, which their
difference loses; and the collector is off, since where its work falls is chance. httpx is counted over respx; aiohttp,
which respx does not see, over sockets, one request at a time: how many replies a turn of the loop finds is chance. So
is, under valgrind, on which side of what the driver takes for quick a latency of 20 ms falls: it is made longer.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import traceback
from dataclasses import replace

import aiohttp  # noqa: F401  # here, so that no child imports it
import httpx  # noqa: F401
import respx  # noqa: F401

import rewardcore
import rewardcore.http.modes  # as above
from bench import harness
from bench.runner import run, stage_for
from bench.scenarios import REGISTRY, Scenario
from rewardcore.testing.latency import Profile

SIZES = (16, 48)
TIMES = 2


def scenarios() -> list[Scenario]:
    """What the client does in this very process, in each mode; not the modes that work in others."""
    httpx_modes = [REGISTRY[f"respx/{mode}/{SIZES[0]}"] for mode in ("sync", "asyncio-httpx")]
    loopback = REGISTRY[f"loopback/asyncio/{SIZES[0]}"]
    return [*httpx_modes, replace(loopback, max_concurrent=1, profile=Profile(latency=0.04), version=2)]


def main(only: list[str]) -> None:
    harness.check_measured(rewardcore.__file__)
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)
    planned = [scenario for scenario in scenarios() if not only or scenario.id in only]
    print(json.dumps({"plan": {scenario.id: scenario.version for scenario in planned}}), flush=True)
    gc.collect()
    gc.freeze()
    gc.disable()
    for scenario in planned:
        for number in range(TIMES):
            for n in SIZES:
                child = os.fork()
                if child == 0:
                    os._exit(_judge(replace(scenario, n=n)))
                _, status = os.waitpid(child, 0)
                answer = {"scenario": scenario.id, "n": n, "time": number, "process": child, "failed": status != 0}
                print(json.dumps(answer), flush=True)


def _judge(scenario: Scenario) -> int:
    try:
        with stage_for(scenario) as stage:
            return 0 if run(scenario, stage).statuses == {"ok": scenario.n} else 1
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main(sys.argv[1:])

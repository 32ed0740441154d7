"""In a revision's environment: the scenario that is named, a round for each line on stdin; without a name, the plan.

Both revisions' processes live at the same time, warm, and take turns; neither works while the other is measured. The
control uses nothing of rewardcore's client, so whatever moves it is the machine.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

import rewardcore
from bench import harness
from bench.main_thread import LOADS
from bench.runner import Stage, loopback_stage, open_scenario, run
from bench.scenarios import PAIRED, REGISTRY, Scenario, samples_of
from rewardcore import Endpoint

#: Steps of the caller's own work; and the smaller of the two sizes between which memory grows.
STEPS, FEW = 250, 256
Round = Callable[[], dict[str, float]]


def judging(scenario: Scenario, stage: Stage) -> Round:
    def one_round() -> dict[str, float]:
        before = time.process_time()
        judged = run(scenario, stage)
        cpu = time.process_time() - before
        if judged.statuses != {"ok": scenario.n}:
            raise AssertionError(f"not every sample was judged: {judged.statuses}")
        assert judged.seconds is not None
        return {"CPU": cpu, "makespan": judged.seconds}

    return one_round


def beside_judging(scenario: Scenario, stage: Stage) -> Round:
    """How long the caller's own thread takes for a fixed piece of work while a batch is judged."""
    samples = samples_of(scenario)

    def one_round() -> dict[str, float]:
        with open_scenario(scenario, stage) as judge:
            judge.judge(samples[: scenario.places])
            started = time.perf_counter()
            pending = judge.submit(samples)
            for _ in range(STEPS):
                LOADS["Python code"]()
            own = time.perf_counter() - started
            pending.result()
        return {"the caller's own work": own}

    return one_round


def growing(scenario: Scenario, stage: Stage) -> Round:
    """Peak memory by the number of samples, each in a process of its own: what it once had, a process keeps."""

    def peak(n: int) -> int:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                judged = run(replace(scenario, n=n), stage)
                assert judged.statuses == {"ok": n}
                os.write(writer, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            kibibytes = answer.read()
        os.waitpid(child, 0)
        return int(kibibytes) * 1024

    def one_round() -> dict[str, float]:
        return {"peak memory a sample": (peak(scenario.n) - peak(FEW)) / (scenario.n - FEW)}

    return one_round


def asking_plainly(scenario: Scenario, stage: Stage) -> Round:
    """The same server, asked by the standard library."""
    assert isinstance(stage.endpoint, Endpoint)
    address = urlsplit(stage.endpoint.base_url)
    body = json.dumps({"model": "judge", "messages": [{"role": "user", "content": "<score>X</score>"}]})

    def one_round() -> dict[str, float]:
        before, started = time.process_time(), time.perf_counter()
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        for _ in range(scenario.n):
            connection.request("POST", f"{address.path}/chat/completions", body, {"Content-Type": "application/json"})
            assert connection.getresponse().read()
        connection.close()
        return {"CPU": time.process_time() - before, "makespan": time.perf_counter() - started}

    return one_round


ROUNDS = {"paired-control": asking_plainly, "paired-beside": beside_judging, "paired-memory": growing}


def main(name: str | None = None) -> None:
    harness.check_measured(rewardcore.__file__)
    logging.getLogger("rewardcore").setLevel(logging.CRITICAL)
    if name is None:
        print(json.dumps({"plan": {scenario.id: scenario.version for scenario in PAIRED}}))
        return
    scenario = REGISTRY[name]
    with loopback_stage(scenario.profile, scenario.seed) as stage:
        one_round = ROUNDS.get(name, judging)(scenario, stage)
        one_round()  # imports, and the machine's caches
        print(json.dumps({"ready": name}), flush=True)
        for _ in sys.stdin:
            print(json.dumps(one_round()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

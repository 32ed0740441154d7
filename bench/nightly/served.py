"""The part http: a vLLM server of the night, asked in every HTTP mode at every size, in rounds; stopped in any case.

How it is asked, capped and compared is bench/real.py's; a server that dies is told with the end of its own log.
"""

from __future__ import annotations

from dataclasses import replace

from bench.nightly.judges import data_type_of, directory_of, engine_context, hear_records
from bench.nightly.parts import Hear, Order, budget_of
from bench.real import RealEndpoint, Size
from bench.self_mode import RUBRIC
from rewardcore import VllmServer

NAME = "judge"
#: Seconds without any reply: a server on this machine that says nothing for so long is gone.
MOST_SILENCE = 60.0


def measure(order: Order, hear: Hear) -> None:
    directory = directory_of(order)
    server = VllmServer(
        directory,
        NAME,
        port=0,
        log_dir=order.logs,
        arguments=arguments_of(order, engine_context(order, directory)),
        progress=lambda line: hear({"tell": line}),
    )
    budget = budget_of(order, sorted({scenario.n for scenario in order.of_registry}))
    with server as endpoint:
        judge = replace(endpoint, max_tokens=order.max_tokens)
        with RealEndpoint.connect(judge, budget, rubric=RUBRIC, most_silence=MOST_SILENCE) as asked:
            hear({"tell": asked.estimate()})
            for size in asked.sizes:
                _measure_size(asked, size, hear)
                if asked.meter.stopped is not None:
                    server.raise_if_dead()
                    raise RuntimeError(f"stopped after {asked.meter.sent} requests: {asked.meter.stopped}")


def arguments_of(order: Order, context: int | None) -> list[str]:
    arguments = ["--dtype", data_type_of(order)]
    if context is not None:
        arguments += ["--max-model-len", str(context)]
    if order.gpu_memory_utilization:
        arguments += ["--gpu-memory-utilization", str(order.gpu_memory_utilization)]
    return [*arguments, *(["--enforce-eager"] if order.device == "cpu" else [])]


def _measure_size(asked: RealEndpoint, size: Size, hear: Hear) -> None:
    hear({"tell": f"{size.n} samples, {size.rounds} rounds of {len(size.scenarios)} modes"})
    asked.measure(size, lambda records: hear_records(hear, records))
    measured = asked.measured(size)
    hear_records(hear, asked.records(measured))
    for each in measured:
        if not each.has_every_reply:
            why = f"it did not get every reply: {dict(each.statuses)}; its time is no speed-up"
            hear({"failed": each.scenario.id, "why": why})

"""The profile `outage`: by the clock, so that whoever probes it carefully sees its end as soon as anybody."""

from __future__ import annotations

import pytest

from rewardcore import Sample, open_judge
from rewardcore.testing import SimulatedServer
from rewardcore.testing.latency import LatencyModel
from rewardcore.testing.profiles import named


@pytest.mark.parametrize("requests_a_second", [1, 400])
def test_an_outage_ends_by_the_clock_however_few_requests_it_meets(requests_a_second: int) -> None:
    model = LatencyModel(named("outage"))
    out = [
        second
        for second in range(20)
        for _ in range(requests_a_second)
        if model.decide(0, in_flight=1, now=100.0 + second).status == 503
    ]
    assert sorted(set(out)) == list(range(3, 13))


@pytest.mark.judge_server("outage", latency=0.1, outage_start=0.0, outage_seconds=0.5)
def test_nothing_is_lost_in_it(judge_server: SimulatedServer) -> None:
    samples = [Sample("How much is it?", f"It is {number}.") for number in range(200)]
    with open_judge("asyncio", judge_server.endpoint, cache=None, deadline=120) as judge:
        verdicts = judge.judge(samples)
    assert {verdict.status for verdict in verdicts} == {"ok"}
    assert judge_server.stats().statuses["503"] >= 1

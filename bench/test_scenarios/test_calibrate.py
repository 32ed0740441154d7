"""Endpoints of hidden temper, probed over sockets and predicted; then asked: predicted over observed.

Each round has a probe of its own, and the median counts: whatever else the machine does moves single rounds. A round
is gone through again for one reason only, that the server's core was full.
"""

from __future__ import annotations

import contextlib
from statistics import median

import pytest

from bench.calibrate.fit import fit
from bench.calibrate.predict import predict_row
from bench.calibrate.probe import Plan, probe
from bench.calibrate.verify import verify
from bench.records import record
from bench.scenarios import CALIBRATED, Scenario
from rewardcore.rubrics import QUALITY
from rewardcore.testing import SimulatedServer
from rewardcore.testing.server_process import SaturatedServer, refuse_if_saturated

ROUNDS = 3
#: Requests that a probe may send, and at how many at once it stops.
BUDGET = (400, 64)


@pytest.mark.parametrize("scenario", CALIBRATED, ids=[scenario.id for scenario in CALIBRATED])
def test_predicted_beside_observed(once, results, scenario: Scenario):
    ratios = once(lambda: measure(scenario))
    shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    line = (
        f"{scenario.id:24} predicted {median(ratios):.3f} × what was observed (rounds: {shown}); aimed at: within 10 %"
    )
    figure = record(scenario, "predicted over observed", abs(median(ratios) - 1.0), "off", "lower", len(ratios))
    title = "1024 samples at 60 at once, predicted by bench.calibrate; aimed at: within 10 %"
    results.note(title, [line], [figure], "the median of the rounds, each with a probe of its own")


def measure(scenario: Scenario) -> list[float]:
    ratios: list[float] = []
    with SimulatedServer(scenario.profile, seed=scenario.seed) as server:
        for seed in range(2 * ROUNDS):
            with contextlib.suppress(SaturatedServer):
                ratios.append(_round(scenario, server, seed))
            if len(ratios) == ROUNDS:
                return ratios
    raise SaturatedServer("the server's core was full too often: the machine is too busy to tell")


def _round(scenario: Scenario, server: SimulatedServer, seed: int) -> float:
    before = server.stats()
    found = fit(probe(server.endpoint, QUALITY, Plan.within(*BUDGET), _nobody, seed=seed))
    row = predict_row(found.profile, scenario.mode, scenario.max_concurrent, (scenario.n,))
    (observed,) = verify(server.endpoint, QUALITY, row, 2 * scenario.n, _nobody, seed=seed + 1000)
    assert observed.seconds is not None, observed.why
    refuse_if_saturated(before, server.stats())
    return observed.predicted / observed.seconds


def _nobody(*_: object) -> None:
    """Told of what nobody watches."""

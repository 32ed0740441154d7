"""The GPUs' wait in each trainer's shape: exact, and a defect moves it."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from bench import training_step
from bench.handover import Tally
from bench.runner import UnequalWork
from bench.scenarios import LOG_PROBABILITIES, STEPS, VALUES

JUDGING = 10.0  # 256 × 2 s at 60 at once: five waves


@pytest.fixture(scope="module")
def waits():
    return {name: run.waited for name, run in training_step.measure().items()}


def test_what_is_submitted_early_is_waited_for_less(waits):
    assert waits == {
        "step-one-by-one": pytest.approx(512.0),
        "step-trl-asked": pytest.approx(JUDGING),
        "step-trl-ahead": pytest.approx(JUDGING - LOG_PROBABILITIES),
        "step-verl-batch": pytest.approx(JUDGING),
        "step-verl-submitted": pytest.approx(max(0.0, JUDGING - LOG_PROBABILITIES - VALUES), abs=1e-9),
        "step-verl-loop": pytest.approx(2.0, abs=0.2),
    }


def test_every_shape_is_a_scenario_and_is_printed(waits):
    assert list(training_step.SHAPES) == [scenario.id for scenario in STEPS] == list(waits)
    lines = training_step.lines_of(training_step.measure())
    assert lines[2] == "TRL, judging_ahead         the GPUs wait    4.0 s   gained    6.0 s"


def test_trajectories_that_are_judged_only_when_all_are_there_are_seen(waits):
    """The defect that a reward loop is there to avoid: everything is asked at the end."""
    with patch.object(training_step, "generated_at", lambda scenario: [60.0] * scenario.n):
        assert training_step.measure()["step-verl-loop"].waited == pytest.approx(waits["step-verl-batch"])


def test_a_step_that_judged_nothing_is_refused():
    with patch.object(training_step, "tallied", lambda verdicts: Tally()), pytest.raises(UnequalWork):
        training_step.measure()

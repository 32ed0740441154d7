"""The part torch of a night for real: its own process, the tiny judge, and every figure that the summary shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.nightly import control
from bench.nightly.batches import COUNTED, WITH_WEIGHTS
from bench.nightly.compare import CONTROL, compare
from bench.nightly.night import Device, Night
from bench.nightly.parts import CONTROL_SCENARIOS, Order, Part, parts_of
from bench.nightly.running import Plan, run_night
from bench.nightly.series import series_of
from bench.nightly.summary import summary
from bench.scenarios import BATCH_SIZES

MEMORY = "torch/self-8/1024"
ORDER = Order("", "cpu", rounds=3)
#: Two of the five batch sizes, which take the least time.
BATCHED = (8, 16)


@pytest.fixture(scope="module")
def night(tmp_path_factory) -> Night:
    """Once for all tests here; the control in this process, the part in its own."""
    directory = tmp_path_factory.mktemp("night")
    (torch,) = [part for part in parts_of(ORDER, (16,)) if part.name == "torch"]
    chosen = tuple(each for each in torch.scenarios if each.id == MEMORY or each.batch_size in BATCHED)
    machine = Part("control", CONTROL_SCENARIOS, lambda ids, hear: control.measure(ORDER, hear))
    beforehand = Night("2026-10-01T02:00:00Z", "1" * 40, Device("cpu"), left_out=["http", "vllm"])
    plan = Plan(beforehand, [replace(torch, scenarios=chosen)], [machine], directory, directory / "history")
    return run_night(plan, lambda line: None)[0]


def test_it_is_clean_and_knows_the_model_and_the_device(night):
    assert [why for why in night.why_not if "the control moved" not in why] == []  # what the machine did is not ours
    assert night.device.name not in ("", "unknown")
    assert night.model.startswith("tiny-judge (")
    assert night.environment["torch"] != "none"
    assert all(len(series.figures) == 3 for id in CONTROL for series in series_of(night.records)[id].values())


@pytest.mark.parametrize("size", BATCHED)
def test_a_batch_size_has_its_calls_and_its_speed_in_rounds(night, size):
    figures = series_of(night.records)[f"torch/self-{size}/16"]
    assert len(figures["samples a second"].figures) == len(figures["tokens a second"].figures) == 3
    assert figures["requests"].value == 16 // size
    assert figures["verdicts ok"].value == 16


def test_no_speed_up_is_without_its_agreement(night):
    """The first of them stands for the baseline, which is batch size 1 where all are measured."""
    first, second = (series_of(night.records)[f"torch/self-{size}/16"] for size in BATCHED)
    assert "speed-up over batch size 1" not in first
    assert "speed-up over batch size 1" in second
    assert second["scores equal to batch size 1's"].value == 1.0


@pytest.mark.parametrize("size", BATCH_SIZES)
def test_every_batch_size_has_its_memory_measured_beside_the_prediction(night, size):
    memory = series_of(night.records)[MEMORY]
    ratio = memory[f"measured over predicted, batch {size}"].value
    measured = memory["weights"].value + memory[f"{COUNTED}, batch {size}"].value
    assert memory[f"{WITH_WEIGHTS}, batch {size}"].value == measured
    assert ratio == measured / memory[f"predicted peak, batch {size}"].value
    assert 0.85 < ratio < 1.05


def test_every_batch_size_gives_the_same_verdicts(night):
    assert len({each.value for each in night.records if each.metric == "verdict digest"}) == 1


def test_the_line_through_what_was_measured_is_near_the_predicted_one(night):
    memory = series_of(night.records)[MEMORY]
    assert memory[f"{COUNTED}, slope"].value == pytest.approx(memory["predicted peak, slope"].value, rel=0.1)
    assert memory["padding"].value < 0.02


def test_the_summary_shows_it(night):
    text = summary(night, None)
    assert "| 16 | 16 | " in text
    assert "Not measured: left out on purpose." in text
    assert "As a line, predicted 0.67 MiB and 1.35 MiB more for each sample; measured 0." in text


@pytest.mark.parametrize(
    ("metric", "planted"),
    [
        (f"{COUNTED}, slope", lambda value: 2 * value),
        ("predicted peak, slope", lambda value: 2 * value),
        ("left behind by a batch of 8", lambda value: value + 4096),
        ("padding", lambda value: value + 0.01),
    ],
)
def test_a_defect_planted_in_a_copy_of_its_records_is_told_and_alone(night, metric, planted):
    worse = [replace(each, value=planted(each.value)) if each.metric == metric else each for each in night.records]
    findings = compare(replace(night, records=worse), [night])
    assert [each.metric for each in findings if each.outcome == "fail"] == [metric]  # noisy rounds are inconclusive

"""What changed since the last clean night, as pure comparisons: which night that is, what counts, and the machine."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bench.nightly import history
from bench.nightly.compare import PACKAGES, compare, compared_with, control_moved, limit_of
from bench.nightly.night import Device
from bench.nightly.series import series_of
from tests.bench.nights import BATCHED, DEVICE, ENGINE, ENVIRONMENT, FIGURES, MEMORY, SERVED, a_night, made_up


def outcomes(changed, device=DEVICE) -> dict[tuple[str, str], str]:
    """Of whatever is not as it was."""
    night = a_night(2, changed, device=device)
    return {
        (each.scenario, each.metric): each.outcome for each in compare(night, [a_night(1)]) if each.outcome != "pass"
    }


def test_a_night_like_the_last_one_has_changed_nothing():
    findings = compare(a_night(2), [a_night(1)])
    compared = {(each.scenario, each.metric) for each in findings}
    assert compared == {key for key in FIGURES if "control" not in key[0]}
    assert {each.outcome for each in findings} == {"pass"}


@pytest.mark.parametrize(
    ("figure", "change", "outcome"),
    [
        ((BATCHED, "verdict digest"), "bbbb", "fail"),
        ((BATCHED, "requests"), 1.5, "fail"),
        ((BATCHED, "requests"), 0.5, None),
        ((MEMORY, "counted peak, slope"), 2.0, "fail"),
        ((MEMORY, "counted peak, slope"), 1.001, "fail"),  # exact: any worsening
        ((MEMORY, "CUDA peak allocated, batch 8"), 1.06, "fail"),
        ((MEMORY, "CUDA peak allocated, batch 8"), 1.03, None),
        ((BATCHED, "samples a second"), 0.9, "fail"),
        ((BATCHED, "samples a second"), 1.2, None),
        ((SERVED, "makespan"), 1.12, "fail"),
        ((SERVED, "makespan"), 1.07, None),  # through vLLM, it takes 10 %
        ((SERVED, "scores equal to sync's"), 0.8, "fail"),
        ((SERVED, "scores equal to sync's"), 0.0, "fail"),  # nothing has no ratio
        ((ENGINE, "weights"), 1.1, "fail"),
        ((ENGINE, "KV blocks"), 0.5, "fail"),
        ((ENGINE, "KV blocks"), 2.0, None),
        ((BATCHED, "verdict digest"), None, "fail"),  # gone
        ((SERVED, "makespan"), None, "fail"),
    ],
)
def test_a_planted_change_is_told_and_nothing_else_is(figure, change, outcome):
    assert outcomes({figure: change}) == ({figure: outcome} if outcome else {})


@pytest.mark.parametrize(
    ("figure", "change", "outcome"),
    [
        ((BATCHED, "samples a second"), 0.75, None),
        ((BATCHED, "samples a second"), 0.5, "fail"),
        ((SERVED, "makespan"), 3.0, None),
        ((SERVED, "makespan"), 5.0, "fail"),
        ((MEMORY, "counted peak, slope"), 1.001, "fail"),
        ((ENGINE, "weights"), 1.1, "fail"),  # memory has no neighbours
    ],
)
def test_on_a_cpu_that_others_share_time_must_change_more(figure, change, outcome):
    cpu = Device("cpu", "AMD EPYC")
    findings = compare(a_night(2, {figure: change}, device=cpu), [a_night(1, device=cpu)])
    assert {(each.scenario, each.metric) for each in findings if each.outcome == "fail"} == (
        {figure} if outcome else set()
    )


@pytest.mark.parametrize(
    ("scenario", "unit", "device", "limit"),
    [
        ("torch/self-8/16", "1/s", "cuda", 1.05),
        ("vllm/sync/16", "s", "cuda", 1.10),
        ("vllm-offline/self/16", "1/s", "cuda", 1.10),
        ("vllm/sync/16", "requests", "cpu", 1.05),
        ("torch/self-8/1024", "bytes", "cpu", 1.05),
        ("torch/self-8/16", "1/s", "cpu", 1.5),
        ("vllm/sync/16", "s", "cpu", 4.0),
    ],
)
def test_the_limit_is_of_the_device_and_of_what_the_figure_waits_for(scenario, unit, device, limit):
    assert limit_of(scenario, unit, device) == limit


def test_a_figure_that_wavers_is_doubtful_and_no_change():
    night = a_night(2)
    wavering = [
        replace(each, value=each.value * (1, 4, 1, 4, 1)[number % 5]) if each.scenario == SERVED else each
        for number, each in enumerate(night.records)
    ]
    found = [each for each in compare(replace(night, records=wavering), [a_night(1)]) if each.outcome != "pass"]
    assert [(each.scenario, each.metric, each.outcome) for each in found] == [(SERVED, "makespan", "inconclusive")]
    assert "too noisy to tell" in found[0].why


def test_two_rounds_say_nothing():
    few = [each for each in made_up() if not each.metric.endswith(("round 3", "round 4", "round 5"))]
    found = {each.metric: each for each in compare(replace(a_night(2), records=few), [a_night(1)])}
    assert found["samples a second"].outcome == "inconclusive"
    assert "2 rounds say nothing: 3 are the least (--rounds)" in found["samples a second"].why


def test_what_was_not_measured_to_its_end_is_not_compared():
    """That it is missing makes the night dirty; half of it would read as a change."""
    half = {(SERVED, "makespan"): None, (SERVED, "scores equal to sync's"): 0.5}
    assert compare(a_night(2, half), [a_night(1)], unfinished=[SERVED]) == [
        each for each in compare(a_night(2), [a_night(1)]) if each.scenario != SERVED
    ]


def test_a_digest_that_a_commit_explains_is_no_change():
    night = a_night(2, {(BATCHED, "verdict digest"): "bbbb"})
    findings = compare(night, [a_night(1)], explained=lambda before: {"verdict digest": "fractions are read"})
    assert {each.outcome for each in findings} == {"pass"}


@pytest.mark.parametrize("name", ["torch", "transformers", "vllm", "driver", "gpu"])
def test_texts_and_predictions_are_compared_only_within_the_same_packages(name):
    """With another torch both are others, though nothing of ours changed; what is counted is compared all the same."""
    another = ENVIRONMENT | {name: "another"}
    changed = {
        (BATCHED, "verdict digest"): "bbbb",
        (MEMORY, "predicted peak, batch 8"): 1.1,
        (MEMORY, "counted peak, slope"): 2.0,
    }
    night = a_night(3, changed, environment=another)
    assert [each.metric for each in compare(night, [a_night(1)]) if each.outcome == "fail"] == ["counted peak, slope"]
    before = a_night(1, environment=another)
    assert {each.metric for each in compare(night, [before, a_night(2)]) if each.outcome == "fail"} == {
        metric for _, metric in changed
    }


def test_every_record_names_what_a_text_depends_on():
    (first, *_) = made_up()
    assert set(PACKAGES) <= first.environment.keys()


# The baseline


def test_the_baseline_is_the_newest_clean_night_of_the_same_setting():
    nights = [
        a_night(1),
        a_night(2),
        a_night(3, why_not=["the control moved"]),
        a_night(4, device=Device("cuda", "NVIDIA H100")),
        a_night(5, device=Device("cpu", "NVIDIA A10")),
        a_night(6, model="another judge"),
        a_night(7, max_tokens=512),
    ]
    found = history.comparable(nights, a_night(9))
    assert [night.when[8:10] for night in found] == ["01", "02"]
    assert set(compared_with(a_night(9), found).values()) == {"2026-10-02 02:00 (222222222222)"}


def test_a_changed_night_that_is_clean_becomes_the_baseline():
    slower = {(BATCHED, "samples a second"): 0.5}
    findings = compare(a_night(3, slower), history.comparable([a_night(1), a_night(2, slower)], a_night(3)))
    assert {each.outcome for each in findings} == {"pass"}


@pytest.mark.parametrize("without", [None, "another version"])
def test_a_scenario_is_compared_with_the_last_night_that_has_it_in_this_version(without):
    """A night by hand with fewer sizes must not hide what the others had."""
    last = a_night(2)
    records = [each for each in last.records if each.scenario != SERVED]
    if without:
        records = [replace(each, version=7) if each.scenario == SERVED else each for each in last.records]
    night = a_night(3, {(SERVED, "makespan"): 2.0})
    nights = [a_night(1), replace(last, records=records)]
    assert [each.scenario for each in compare(night, nights) if each.outcome == "fail"] == [SERVED]
    assert compared_with(night, nights)[SERVED] == a_night(1).label
    assert compared_with(night, nights)[BATCHED] == last.label


def test_a_scenario_that_no_night_had_in_this_version_is_not_compared():
    old = [replace(each, version=7) for each in a_night(1).records]
    assert compare(a_night(2), [replace(a_night(1), records=old)]) == []


# The machine


@pytest.mark.parametrize(
    ("changed", "device", "moved"),
    [
        ({}, "cuda", 0),
        ({("nightly-control", "matrix products"): 1.06}, "cuda", 1),
        ({("nightly-control", "matrix products"): 0.9}, "cuda", 1),  # faster is another machine too
        ({("nightly-control", "matrix products"): 1.2}, "cpu", 0),
        ({("paired-control", "makespan"): 1.07}, "cuda", 0),
        ({("paired-control", "makespan"): 1.2}, "cuda", 1),
        ({("paired-control", "makespan"): 3.0}, "cpu", 0),
        ({("paired-control", "makespan"): 5.0}, "cpu", 1),
        ({(SERVED, "makespan"): 9.0}, "cuda", 0),  # no control
    ],
)
def test_a_control_that_moved_by_what_would_count_as_a_change_is_told(changed, device, moved):
    told = control_moved([*made_up(changed), *made_up(changed, first=6)], [a_night(1)], device)
    assert len(told) == moved
    assert all("since 2026-10-01" in each for each in told)


def test_a_control_that_moves_within_the_night_is_told_without_any_night_before():
    slower = {("nightly-control", "matrix products"): 1.5}
    (told,) = control_moved([*made_up(), *made_up(slower, first=6)], [], "cuda")
    assert "the control moved during the night: products of matrices took 1.5" in told


def test_twenty_nights_of_one_machine_raise_no_alarm():
    """Each against the one before it, with noise of its own; a change would have to come twice in a night."""
    draw = random.Random(2026)
    before = replace(a_night(1), records=made_up(draw=draw))
    alarms = 0
    for _ in range(20):
        first, again = (replace(a_night(2), records=made_up(draw=draw)) for _ in range(2))
        twice = [
            {(each.scenario, each.metric) for each in compare(one, [before]) if each.outcome == "fail"}
            for one in (first, again)
        ]
        alarms += bool(twice[0] & twice[1])
        before = replace(first, when="2026-10-01T02:00:00Z")
    assert alarms == 0


def test_rounds_are_read_in_their_order_and_a_value_beside_them_is_theirs_together():
    series = series_of(made_up())[SERVED]["makespan"]
    assert series.figures == [1.0, 1.01, 0.99, 1.02, 0.98]
    assert series.middle == 1.0
    assert series_of(made_up())[ENGINE]["weights"].figures == [700_000]

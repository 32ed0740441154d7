"""The length penalty, by table and by property."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rewardcore import ConfigurationError
from rewardcore.rewards import LengthPenaltyConfig, length_penalty
from rewardcore.rewards.configuration import read

PLAIN = LengthPenaltyConfig()


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 1.0), (40, 1.0), (50, 1.0), (60, 0.5), (70, 0.0), (100, 0.0), (130, 0.0), (140, 0.5), (150, 1.0), (900, 1.0)],
)
def test_nothing_near_the_median_then_linear_then_constant(length, penalty):
    assert length_penalty(length, 100, PLAIN) == pytest.approx(penalty)


@pytest.mark.parametrize(
    ("fields", "penalty"),
    [
        ({}, 0.5),
        ({"penalty_scale": 2.0}, 1.0),
        ({"max_penalty": 0.4}, 0.2),
        ({"max_penalty": 0.4, "penalty_scale": 0.5}, 0.1),
        ({"peak_ratio": 0.0, "outer_ratio": 0.8}, 0.5),
        ({"enable": False}, 0.0),
    ],
)
def test_the_fields_shape_it(fields, penalty):
    assert length_penalty(140, 100, LengthPenaltyConfig(**fields)) == pytest.approx(penalty)


def test_a_group_whose_median_is_nothing_has_no_penalty():
    assert length_penalty(500, 0, PLAIN) == 0.0


lengths = st.floats(0, 1e6)
medians = st.floats(1, 1e5)
configurations = st.builds(
    lambda peak, width, scale, most: LengthPenaltyConfig(
        peak_ratio=peak, outer_ratio=peak + width, penalty_scale=scale, max_penalty=most
    ),
    st.floats(0, 2),
    st.floats(0.01, 2),
    st.floats(0, 10),
    st.floats(0, 10),
)


@given(medians, st.floats(0, 1), configurations)
def test_it_is_the_same_on_both_sides_of_the_median(median, share, config):
    offset = share * median
    assert length_penalty(median - offset, median, config) == pytest.approx(
        length_penalty(median + offset, median, config), abs=1e-6
    )


@given(lengths, lengths, medians, configurations)
def test_it_never_falls_with_the_distance_from_the_median(one, other, median, config):
    assume(abs(one - median) <= abs(other - median))
    assert length_penalty(one, median, config) <= length_penalty(other, median, config) + 1e-9


@given(lengths, medians, configurations)
def test_it_stays_between_nothing_and_the_most(length, median, config):
    assert 0.0 <= length_penalty(length, median, config) <= config.penalty_scale * config.max_penalty


@given(medians, st.sampled_from(["peak_ratio", "outer_ratio"]), st.sampled_from([-1, 1]), configurations)
def test_there_is_no_jump_at_the_kinks(median, kink, side, config):
    at = median * (1 + side * getattr(config, kink))
    step = median * 1e-9
    slope = config.penalty_scale * config.max_penalty / (median * (config.outer_ratio - config.peak_ratio))
    for near in (at - step, at + step):
        jump = abs(length_penalty(near, median, config) - length_penalty(at, median, config))
        assert jump <= slope * step * 1.01 + 1e-6


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"peak_ratio": 0.5, "outer_ratio": 0.5}, r"outer_ratio \(0.5\) must exceed peak_ratio \(0.5\)"),
        ({"outer_ratio": 0.2}, r"outer_ratio \(0.2\) must exceed peak_ratio \(0.3\)"),
        ({"peak_ratio": -0.1}, "peak_ratio must be a finite number of at least 0, not -0.1"),
        ({"max_penalty": float("inf")}, "max_penalty must be a finite number"),
        ({"penalty_scale": float("nan")}, "penalty_scale must be a finite number"),
        ({"reward_coefficient": float("nan")}, "reward_coefficient must be a finite number"),
        ({"pek_ratio": 0.1}, "pek_ratio is no field of LengthPenaltyConfig; did you mean peak_ratio"),
    ],
)
def test_a_wrong_configuration_names_its_field(fields, says):
    with pytest.raises(ConfigurationError, match=says):
        read(LengthPenaltyConfig, fields)


@pytest.mark.parametrize("name", ["penalty_scale", "peak_ratio", "reward_coefficient", "deadline"])
@pytest.mark.parametrize("value", ["1", None, True])
def test_what_is_no_number_is_named(name, value):
    with pytest.raises(ConfigurationError, match=f"{name} must be"):
        LengthPenaltyConfig(**{name: value})


def test_a_key_is_in_no_repr():
    assert "sk-secret" not in repr(LengthPenaltyConfig(api_key="sk-secret"))

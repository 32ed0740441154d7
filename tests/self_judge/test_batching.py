from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.local.batching import form_batches, padding_waste

lengths_of_prompts = st.lists(st.integers(1, 5000), max_size=200)
batch_sizes = st.integers(1, 40)


@given(lengths_of_prompts, batch_sizes)
def test_every_prompt_is_in_exactly_one_of_ceil_n_over_batch_size_batches(lengths: list[int], size: int) -> None:
    batches = form_batches(lengths, size)
    assert len(batches) == ceil(len(lengths) / size)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)


@given(lengths_of_prompts, batch_sizes)
def test_no_batch_holds_a_prompt_longer_than_one_of_an_earlier_batch(lengths: list[int], size: int) -> None:
    ordered = [lengths[index] for batch in form_batches(lengths, size) for index in batch]
    assert ordered == sorted(lengths, reverse=True)


@given(st.data(), batch_sizes, st.integers(1, 8))
def test_full_batches_by_length_never_waste_more_than_any_other_order(
    data: st.DataObject, size: int, count: int
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 5000), min_size=size * count, max_size=size * count))
    order = data.draw(st.permutations(range(size * count)))
    other = [order[start : start + size] for start in range(0, len(order), size)]
    assert padding_waste(lengths, form_batches(lengths, size)) <= padding_waste(lengths, other)


@given(lengths_of_prompts, batch_sizes)
def test_waste_is_a_share_and_single_prompts_waste_nothing(lengths: list[int], size: int) -> None:
    assert 0.0 <= padding_waste(lengths, form_batches(lengths, size)) < 1.0
    assert padding_waste(lengths, form_batches(lengths, 1)) == 0.0


def test_waste_counts_padded_positions() -> None:
    assert padding_waste([10, 5, 5], [[0, 1], [2]]) == pytest.approx(5 / 25)


def test_without_a_batch_size_everything_is_one_batch() -> None:
    assert form_batches([1, 3, 2], None) == [[1, 2, 0]]
    assert form_batches([], None) == []


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused_by_name(size: int) -> None:
    with pytest.raises(ValueError, match="batch_size must be 1 or more"):
        form_batches([1], size)

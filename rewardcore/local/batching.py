"""Batches formed by length, so that little padding is computed. Pure: indices in, indices out.

Longest first: the batch that needs the most memory is tried at once, not after an hour of work.
"""

from collections.abc import Sequence


def form_batches(lengths: Sequence[int], batch_size: int | None) -> list[list[int]]:
    """The indices of `lengths` in exactly ceil(N / batch_size) batches; None is one batch of everything."""
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    size = batch_size or max(len(order), 1)
    return cut(order, size)


def cut(batch: list[int], size: int) -> list[list[int]]:
    return [batch[start : start + size] for start in range(0, len(batch), size)]


def padding_waste(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """The share of computed positions that are padding, from 0.0 to 1.0."""
    computed = sum(max(lengths[index] for index in batch) * len(batch) for batch in batches if batch)
    useful = sum(lengths[index] for batch in batches for index in batch)
    return 1.0 - useful / computed if computed else 0.0

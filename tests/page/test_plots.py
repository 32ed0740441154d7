"""What the plots say before a browser draws them."""

from __future__ import annotations

import pytest

from bench.figures import MEMORY
from bench.records import record
from bench.report.newest import Newest
from bench.report.plots import speed_up
from bench.report.sections import costs
from bench.report.table import Table


@pytest.mark.parametrize("device", ["CPU", "CUDA"])
def test_only_a_gpu_makes_the_page_say_no_more_that_none_has_measured(device: str) -> None:
    peak = record(MEMORY, f"{device} peak, batch 1", 5, "bytes", "lower")
    missing = [sentence for sentence, _ in costs.memory_by_batch_size(Newest([peak])).missing]
    assert missing == ([] if device == "CUDA" else ["No GPU has measured it yet; a night does:"])


@pytest.mark.parametrize("most", [1.2, 1.5, 2.6, 4.9, 5.1, 16.0, 56.9, 204.8])
def test_an_axis_of_speed_ups_has_something_to_read_them_by(most: float) -> None:
    rows = [
        {"mode": mode, "n": 16, "speed_up": times, "ideal": None, "seconds": 1.0}
        for mode, times in (("sync", 1.0), ("asyncio", most))
    ]
    plot = speed_up.by_size(Table({"n": "samples"}, rows))
    y = next(layer["encoding"]["y"] for layer in plot["layer"] if "axis" in layer["encoding"].get("y", {}))
    low, high = y["scale"]["domain"]
    assert len([tick for tick in y["axis"]["values"] if low <= tick <= high]) >= 2

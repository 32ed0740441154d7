"""How much of a night fits its minutes, and that this is told before anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.nightly import __main__ as command
from bench.nightly import budget
from bench.nightly.budget import fitting
from bench.nightly.parts import Order, PartFailed
from bench.scenarios import SIZES
from tests.bench.nights import PARTS, a_part, control

ORDER = Order("", "cuda", "model", rounds=5)


@pytest.mark.parametrize(
    ("reply", "without", "sizes", "rounds"),
    [
        (0.05, (), SIZES, 5),
        (0.8, (), SIZES, 3),  # rounds go before sizes do ...
        (1.6, (), SIZES[:3], 5),
        (1.6, ("http",), SIZES, 5),  # ... and most of the time is a plain loop's, over HTTP
        (10.0, (), SIZES[:2], 3),
        (1000.0, (), SIZES[:1], 3),  # the least there is
    ],
)
def test_sizes_and_rounds_follow_from_what_a_reply_takes(reply, without, sizes, rounds):
    extent = fitting(ORDER, SIZES, 90, without, reply)
    assert (extent.sizes, extent.rounds) == (sizes, rounds)
    assert extent.minutes <= 90 or reply == 1000.0
    left_out = ", ".join(map(str, SIZES[len(sizes) :]))
    assert extent.notes == ((f"n = {left_out}: left out to stay within --minutes 90",) if left_out else ())


def test_more_minutes_never_measure_less():
    extents = [fitting(ORDER, SIZES, minutes, (), 1.0) for minutes in range(1, 300)]
    amounts = [(len(each.sizes), each.rounds) for each in extents]
    assert amounts == sorted(amounts)


def test_few_rounds_that_were_asked_for_are_not_made_more():
    assert fitting(Order("", "cuda", "model", rounds=3), SIZES, 90, (), 0.01).rounds == 3


def night(directory: Path, monkeypatch: pytest.MonkeyPatch, probe, *arguments: str) -> tuple[dict, list]:
    """Its document, and (sizes, rounds) as its parts were told them."""
    asked = []

    def parts_of(order, sizes):
        asked.append((tuple(sizes), order.rounds))
        return [a_part(name) for name in PARTS]

    (directory / "config.json").write_text("{}")
    monkeypatch.setattr(budget, "run_child", probe)
    monkeypatch.setattr(command, "parts_of", parts_of)
    monkeypatch.setattr(command, "control_part", lambda order: control(first=order.first_round))
    monkeypatch.setattr(command.history, "read", lambda directory: ([], []))
    out = directory / "out"
    command.main(["--device", "cpu", "--model", str(directory), "--output", str(out), *arguments])
    return json.loads((out / "night.json").read_text()), asked


def timed(seconds: float):
    def probe(order: Order, hear) -> None:
        assert order.part == "probe"
        hear({"seconds a reply": seconds})

    return probe


def test_a_models_night_is_timed_told_and_kept_within_its_minutes(tmp_path, monkeypatch, capsys):
    document, asked = night(tmp_path, monkeypatch, timed(1.6), "--minutes", "50")
    first, second, third, fourth, *_ = capsys.readouterr().err.splitlines()
    assert "the judge is timed" in first
    assert "a reply takes 1.6 s: n = 16, 32, 100 in 4 rounds, about 50 minutes of --minutes 50; more where" in second
    assert "never more than" in third
    assert "control begins" in fourth
    assert asked == [((16, 32, 100), 4)]
    assert document["notes"] == ["n = 1024: left out to stay within --minutes 50"]
    assert "- n = 1024: left out to stay within --minutes 50" in (tmp_path / "out" / "summary.md").read_text()


def test_where_the_judge_cannot_be_timed_as_little_as_possible_is_measured(tmp_path, monkeypatch, capsys):
    def probe(order, hear):
        raise PartFailed("CUDA out of memory")

    document, asked = night(tmp_path, monkeypatch, probe)
    assert asked == [((16,), 3)]
    assert document["notes"] == ["n = 16 alone: the judge could not be timed"]
    assert "the judge cannot be timed, so that as little as possible is measured: CUDA" in capsys.readouterr().err


def test_the_tiny_judge_is_fast_enough_for_everything(tmp_path, monkeypatch):
    def never(order, hear):
        raise AssertionError("it is not timed")

    monkeypatch.setattr(budget, "run_child", never)
    monkeypatch.setattr(command, "parts_of", lambda order, sizes: [a_part(name) for name in PARTS])
    monkeypatch.setattr(command, "control_part", lambda order: control(first=order.first_round))
    assert command.main(["--device", "cpu", "--output", str(tmp_path)]) == 0

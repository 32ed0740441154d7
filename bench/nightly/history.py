"""Nights that were: a directory of documents, each written whole or not at all; and which of them is the baseline.

A file that cannot be read is told and passed over: it must not stop tonight's, and is nobody's to delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.nightly.night import Night, NotANight
from rewardcore.files.atomic import write_atomically


def read(directory: Path) -> tuple[list[Night], list[str]]:
    """All nights, oldest first; and of files that are none, why."""
    nights, problems = [], []
    for path in sorted(directory.glob("*.json")):
        try:
            nights.append(Night.read(path.read_bytes()))
        except (NotANight, OSError) as error:
            problems.append(f"{path.name} in the history was passed over: {error}")
    return sorted(nights, key=lambda night: night.when), problems


def keep(night: Night, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / night.name
    write(night, path)
    return path


def write(night: Night, path: Path) -> None:
    with write_atomically(path) as file:
        file.write(night.json())


def comparable(nights: Sequence[Night], tonight: Night) -> list[Night]:
    """Clean, and in the same setting: what a baseline can be chosen from."""
    return [night for night in nights if night.is_clean and night.setting == tonight.setting]


def baseline(nights: Sequence[Night], scenario: str, version: int) -> Night | None:
    """The newest of these that has measured the scenario in this version.

    For each scenario by itself: a night with fewer sizes, or the first one with a new scenario, hides no other.
    """
    return next((night for night in reversed(nights) if night.scenarios.get(scenario) == version), None)

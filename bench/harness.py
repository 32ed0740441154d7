"""How `bench` is imported beside a `rewardcore` that is not this checkout's: the gate and asv measure installed ones.

Whoever puts the root of the checkout on the path measures the checkout, whatever revision is installed, and every
comparison reads "no change". Imports nothing of rewardcore.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bench", "fixtures")


def stand_apart() -> Path:
    """A directory with the harness and without `rewardcore`, to be put on the path; made where it is missing."""
    directory = ROOT / ".bench" / "harness"
    directory.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        with contextlib.suppress(FileExistsError):
            (directory / package).symlink_to(ROOT / package, target_is_directory=True)
    return directory


def check_measured(package: str) -> None:
    """`package` is the file of the rewardcore that was imported: it must not be this checkout's."""
    if Path(package).resolve().parent == ROOT / "rewardcore":
        raise ImportError(f"rewardcore is imported from this checkout ({ROOT}) in place of the revision to be measured")

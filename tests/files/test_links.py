"""An output that is a link: what it points to is written, and the link stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewardcore.files.atomic import put_aside, write_atomically
from rewardcore.testing import SimulatedServer
from tests.commands import rewardcore


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """To a file in another directory, which is not there yet."""
    (tmp_path / "disk").mkdir()
    link = tmp_path / "out.jsonl"
    link.symlink_to(Path("disk") / "verdicts.jsonl")
    return link


def test_a_link_stays_and_its_target_is_replaced(link: Path) -> None:
    for text in (b"old", b"new"):
        with write_atomically(link) as file:
            file.write(text)
        assert link.is_symlink()
        assert (link.parent / "disk" / "verdicts.jsonl").read_bytes() == text
    assert [each.name for each in (link.parent / "disk").iterdir()] == ["verdicts.jsonl"]


def test_what_a_link_points_to_is_put_aside_and_the_link_stays(link: Path) -> None:
    record = link.with_name("out.jsonl.run.json")
    for number in (1, 2):
        link.write_text("kept")
        record.write_text("{}")
        put_aside(link, record)
        assert link.is_symlink()
        assert not link.exists()
        assert (link.parent / "disk" / f"verdicts.jsonl.old-{number}").read_text() == "kept"
        assert (link.parent / f"out.jsonl.old-{number}.run.json").exists()


def test_a_judged_file_goes_where_the_link_points(link: Path, judge_server: SimulatedServer) -> None:
    (link.parent / "rows.jsonl").write_text('{"prompt": "?", "response": "!"}\n')
    words = ["judge", "rows.jsonl", "out.jsonl", "--base-url", judge_server.base_url, "--model", "judge"]
    for flags in ([], ["--no-resume"]):
        assert rewardcore(*words, *flags, cwd=link.parent).returncode == 0
        assert link.is_symlink()
    names = {each.name for each in (link.parent / "disk").iterdir()}
    assert names == {"verdicts.jsonl", "verdicts.jsonl.old-1"}

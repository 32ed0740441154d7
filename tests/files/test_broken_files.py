"""Files that break off: what stands before the break is judged, and the break is one bad row."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from rewardcore.testing import SimulatedServer
from tests.commands import rewardcore


def cut_off(path: Path, rows: int, share: float) -> int:
    """A compressed file of which a part is missing; how many whole rows are left of it."""
    lines = (json.dumps({"prompt": f"Question {n}.", "response": "x" * (n % 97)}) + "\n" for n in range(rows))
    data = gzip.compress("".join(lines).encode())
    data = data[: int(len(data) * share)]
    path.write_bytes(data)
    return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data).count(b"\n")


@pytest.mark.parametrize("share", [0.7, 0.999])
def test_a_cut_off_file_is_finished_with_every_row_before_the_break(
    share: float, tmp_path: Path, judge_server: SimulatedServer
) -> None:
    whole = cut_off(tmp_path / "rows.jsonl.gz", 3000, share)
    assert 1000 < whole <= 3000
    words = ["judge", "rows.jsonl.gz", "out.jsonl", "--base-url", judge_server.base_url, "--model", "judge"]
    refused = rewardcore(*words, cwd=tmp_path)
    assert refused.returncode == 2
    assert f"rewardcore: line {whole + 1} of rows.jsonl.gz cannot be read: Compressed file ended" in refused.stderr
    assert "; the file is cut off or damaged here, and the rows after it are lost; nothing was sent" in refused.stderr
    for says in (f"{whole:,} rows: {whole:,} ok", "is complete already"):
        done = rewardcore(*words, "--skip-bad-rows", cwd=tmp_path)
        assert (done.returncode, says in done.stdout) == (0, True), done
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == whole
    assert json.loads((tmp_path / "out.jsonl.run.json").read_bytes())["summary"]["bad_rows"] == 1


def test_the_break_is_told_also_where_another_row_is_bad(tmp_path: Path, judge_server: SimulatedServer) -> None:
    lines = ["7\n", *(json.dumps({"prompt": f"{n}", "response": "x" * (n % 97)}) + "\n" for n in range(3000))]
    data = gzip.compress("".join(lines).encode())
    (tmp_path / "rows.jsonl.gz").write_bytes(data[: len(data) // 2])
    words = ["judge", "rows.jsonl.gz", "out.jsonl", "--base-url", judge_server.base_url, "--model", "judge"]
    done = rewardcore(*words, "--skip-bad-rows", cwd=tmp_path)
    assert done.returncode == 0
    assert "rewardcore: 2 bad rows are skipped, the first: line 1 of rows.jsonl.gz is a number" in done.stderr
    assert "; the file is cut off or damaged here, and the rows after it are lost" in done.stderr

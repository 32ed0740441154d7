"""Rows of JSON lines, of Parquet and of a hub's data set; and what is said of one that cannot be read."""

from __future__ import annotations

import gzip
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from rewardcore.failures import ConfigurationError
from rewardcore.files import json_lines
from rewardcore.files.rows import BadRow, Row, Rows, open_rows

ROWS = [{"prompt": f"question {number}", "score": number / 2} for number in range(200)]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def jsonl(rows: list[dict[str, object]]) -> bytes:
    return b"".join(map(json_lines.line_of, rows))


def as_lines(directory: Path) -> Rows:
    return open_rows(str(write(directory / "data.jsonl", jsonl(ROWS))))


def as_compressed_lines(directory: Path) -> Rows:
    return open_rows(str(write(directory / "data.ndjson.gz", jsonl(ROWS))))


def as_parquet(directory: Path) -> Rows:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), directory / "data.parquet", row_group_size=70)
    return open_rows(str(directory / "data.parquet"))


def as_data_set(directory: Path) -> Rows:
    return open_rows("owner/data")


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub with one data set."""

    def load(name: str, split: str) -> datasets.Dataset:
        if (name, split) != ("owner/data", "train"):
            raise ValueError(f"there is no {name} with {split} here\nand so on")
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load)


each_kind = pytest.mark.parametrize("opened", [as_lines, as_compressed_lines, as_parquet, as_data_set])


@each_kind
def test_rows_come_in_order_each_with_its_index_and_its_place(opened: object, tmp_path: Path) -> None:
    rows = opened(tmp_path)  # type: ignore[operator]
    read = list(rows.read())
    assert [row.fields for row in read] == ROWS
    assert [row.index for row in read] == list(range(200))
    assert read[16].place == f"{'line' if rows.total is None else 'row'} 17 of {rows.name}"
    assert rows.total in (None, 200)


def test_an_image_of_a_data_set_is_what_is_stored_and_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    features = datasets.Features({"problem": datasets.Value("string"), "images": [datasets.Image()]})
    row = {"problem": "Good?", "images": [{"bytes": b"no image at all", "path": None}]}
    data = datasets.Dataset.from_list([row], features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: data)
    assert [found.fields for found in open_rows("owner/data").read()] == [row]


@each_kind
def test_what_is_skipped_is_left_out(opened: object, tmp_path: Path) -> None:
    rows = opened(tmp_path)  # type: ignore[operator]
    done = {*range(150), 152}
    expected = [150, 151, *range(153, 200)]
    assert [(row.index, row.fields) for row in rows.read(done)] == [(index, ROWS[index]) for index in expected]
    assert [row.index for row in rows.read(lambda index: index in done)] == expected
    assert list(rows.read(range(200))) == []


@each_kind
def test_a_fingerprint_is_that_of_the_data(opened: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened(tmp_path).fingerprint  # type: ignore[operator]
    assert opened(tmp_path).fingerprint == before  # type: ignore[operator]
    monkeypatch.setitem(ROWS[-1], "prompt", "question 2OO")
    assert opened(tmp_path).fingerprint != before  # type: ignore[operator]


BAD_LINES = [
    (b'{"prompt": "half', "is not valid JSON: unexpected end of data"),
    (b'{"score": NaN}', "is not valid JSON"),
    (b'{"score": 1e999}', "is not valid JSON: number is infinity"),
    (b'{"prompt": "\\ud800"}', "is not valid JSON"),
    (b'{"prompt": "\xff"}', "is not valid JSON: str is not valid UTF-8"),
    (b"[" * 2000, "is not valid JSON"),
    (b"[1]", "is a list, not an object"),
    (b'"text"', "is a text, not an object"),
    (b"null", "is null, not an object"),
    (b"17", "is a number, not an object"),
    (b"true", "is true or false, not an object"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_a_bad_line_is_told_with_its_number_and_harms_no_other(tmp_path: Path, line: bytes, reason: str) -> None:
    path = write(tmp_path / "data.jsonl", b'{"a": 1}\n\n' + line + b'\n  \n{"a": 2}')
    first, bad, last = open_rows(str(path)).read()
    assert isinstance(bad, BadRow)
    assert str(bad).startswith(f"line 3 of data.jsonl {reason}")
    assert (first, last) == (Row(0, "line 1 of data.jsonl", {"a": 1}), Row(2, "line 5 of data.jsonl", {"a": 2}))


def test_a_line_that_is_skipped_is_not_parsed(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", b'{"a": 1}\nno JSON at all\n{"a": 2}\n')
    assert [row.index for row in open_rows(str(path)).read({1})] == [0, 2]


def test_numbers_of_any_size_and_a_byte_order_mark_are_read_exactly(tmp_path: Path) -> None:
    number = 123456789012345678901234567890
    path = write(tmp_path / "data.jsonl", b'\xef\xbb\xbf{"a": [%d], "b": 1e300}\n' % number)
    (row,) = open_rows(str(path)).read()
    assert isinstance(row, Row)
    assert row.fields == {"a": [number], "b": 1e300}
    assert json_lines.parse(json_lines.line_of(row.fields)) == row.fields


def test_dates_and_decimals_become_text_and_bytes_are_refused() -> None:
    line = json_lines.line_of({"day": date(2024, 2, 29), "price": Decimal("1.10")})
    assert line == b'{"day":"2024-02-29","price":"1.10"}\n'
    with pytest.raises(TypeError, match="a bytes, which JSON cannot carry"):
        json_lines.line_of({"image": b"\xff"})


def test_a_compressed_file_that_is_cut_off_tells_where(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(ROWS))[:-12])
    *_, bad = open_rows(str(path)).read()
    assert isinstance(bad, BadRow)
    assert "cannot be read: Compressed file ended" in str(bad)


def test_a_parquet_row_with_a_nan_is_a_bad_row(tmp_path: Path) -> None:
    table = pyarrow.table({"a": [1.0, float("nan")], "b": [[0.5], [float("inf")]]})
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    fine, bad = open_rows(str(tmp_path / "data.parquet")).read()
    assert isinstance(fine, Row)
    assert str(bad) == "row 2 of data.parquet holds NaN or an infinity in 'a'; give null, or a number"


def test_a_parquet_file_that_is_damaged_ends_in_a_bad_row(tmp_path: Path) -> None:
    as_parquet(tmp_path)
    damaged = bytearray((tmp_path / "data.parquet").read_bytes())
    group = pyarrow.parquet.ParquetFile(tmp_path / "data.parquet").metadata.row_group(1).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    damaged[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    (tmp_path / "data.parquet").write_bytes(damaged)
    *fine, bad = open_rows(str(tmp_path / "data.parquet")).read()
    assert len(fine) == 70
    assert isinstance(bad, BadRow)
    assert str(bad).startswith("row 71 of data.parquet cannot be read: ")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("missing.jsonl", "missing.jsonl does not exist; give a file that ends in .jsonl, "),
        ("missing.parquet", "missing.parquet does not exist"),
        ("folder", "folder is a directory; give a file"),
        ("table.csv", "table.csv has an ending that is not known; give a file that ends in .jsonl"),
        ("missing.json", "missing.json has an ending that is not known"),
        ("./owner/data", "./owner/data does not exist"),
        ("a/b/c", "a/b/c does not exist; give a file"),
        ("no.parquet", "no.parquet cannot be read as Parquet: "),
        ("owner/missing", "data set 'owner/missing', split 'train', cannot be loaded: there is no owner/missing with"),
    ],
)
def test_a_source_that_is_none_is_one_sentence(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "table.csv").write_text("a,b\n")
    (tmp_path / "no.parquet").write_text("no Parquet")
    with pytest.raises(ConfigurationError) as error:
        open_rows(source)
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("package", "source"), [("pyarrow", "data.parquet"), ("datasets", "owner/data")])
def test_a_missing_package_names_its_extra(
    package: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    as_parquet(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=r"needs an extra .*: pip install 'rewardcore\[data\]'"):
        open_rows(source)

"""Rows become problems, or say why not."""

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from rewardcore import ConfigurationError
from rewardcore.files.rows import open_rows
from rewardcore.rejection.plan import Plan
from rewardcore.rejection.problems import Problem, Problems, Unusable, problem_of
from tests.rejection.conftest import problems, write_rows

PNG = b"\x89PNG\r\n\x1a\n one"
GIF = b"GIF89a two"


def of(**fields):
    return problem_of(4, "line 5", fields, fields.pop("directory", None))


def parts_of(problem):
    ((message,), content) = (problem.prompt(), problem.prompt()[0]["content"])
    assert message["role"] == "user"
    return [part.get("text") or part["image_url"]["url"].partition(";")[0] for part in content]


@pytest.mark.parametrize(
    ("answer", "truth"), [(3, 3.0), (2.5, 2.5), ("3.25", 3.25), (" -1e2 ", -100.0), ("<answer>4</answer>", 4.0)]
)
def test_the_truth_is_a_number_or_a_text_that_is_one(answer, truth):
    assert of(problem="How good?", answer=answer) == Problem(4, "line 5", "How good?", truth)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"answer": 1}, "there is no field 'problem'; the row has 'answer'"),
        ({"problem": "How?"}, "there is no field 'answer'; the row has 'problem'"),
        ({"problem": "", "answer": 1}, "problem must be a text that is not empty, not str ''"),
        ({"problem": ["How?"], "answer": 1}, "problem must be a text that is not empty, not list"),
        ({"problem": "How?", "answer": "good"}, "answer must be a finite number, not str 'good'"),
        ({"problem": "How?", "answer": "3.5/5"}, "answer must be a finite number"),
        ({"problem": "How?", "answer": True}, "answer must be a finite number, not bool True"),
        ({"problem": "How?", "answer": None}, "answer must be a finite number, not NoneType"),
        ({"problem": "How?", "answer": float("nan")}, "answer must be a finite number"),
        ({"problem": "How?", "answer": 10**400}, "answer must be a finite number"),
        (
            {"problem": "<image> or <image>?", "answer": 1, "images": [PNG]},
            "marks 2 images with <image>, and images holds 1",
        ),
        ({"problem": "<image>?", "answer": 1}, "marks 1 images with <image>, and images holds 0"),
        ({"problem": "<image>?", "answer": 1, "images": [PNG, GIF]}, "marks 1 images with <image>, and images holds 2"),
        ({"problem": "How?", "answer": 1, "images": [PNG, 7]}, r"images\[1\] is int, not a path"),
    ],
)
def test_a_row_that_is_none_says_which_field_is_wrong(fields, says):
    with pytest.raises(Unusable, match=says):
        of(**fields)


def test_without_images_a_problem_is_its_text():
    assert of(problem="How good?", answer=1, images=[]).prompt() == "How good?"


def test_images_stand_where_the_text_marks_them():
    problem = of(problem="Is <image> better than <image>?", answer=1, images=[PNG, GIF])
    assert parts_of(problem) == ["Is ", "data:image/png", " better than ", "data:image/gif", "?"]


def test_a_mark_at_either_end_leaves_no_empty_text():
    assert parts_of(of(problem="<image>Good?<image>", answer=1, images=[PNG, GIF])) == [
        "data:image/png",
        "Good?",
        "data:image/gif",
    ]


@pytest.mark.parametrize("images", [PNG, {"bytes": PNG, "path": None}, [PNG], (PNG,), Image.new("RGB", (2, 2))])
def test_one_image_needs_no_list_and_without_a_mark_it_comes_first(images):
    assert parts_of(of(problem="Good?", answer=1, images=images)) == ["data:image/png", "Good?"]


def test_an_image_that_turns_out_broken_names_its_place():
    problem = of(problem="Good?", answer=1, images=[PNG, b"nothing"])
    with pytest.raises(Unusable, match=r"images\[1\] is no image that can be read"):
        problem.prompt()


def gone_through(tmp_path, rows, done=frozenset(), **plan):
    path = write_rows(tmp_path / "rows.jsonl", rows)
    found = Problems(open_rows(str(path)), tmp_path, done.__contains__, Plan(**plan))
    found.look_at_all()
    return found


def test_every_row_is_looked_at_before_anything_is_asked_and_bad_ones_are_named_by_line(tmp_path):
    rows = [*problems(2), {"problem": "?"}, *problems(1), *[{"answer": 1}] * 3]
    with pytest.raises(ConfigurationError) as found:
        gone_through(tmp_path, rows)
    said = str(found.value)
    assert said.startswith("4 bad rows in rows.jsonl: line 3 of rows.jsonl: there is no field 'answer'")
    assert "line 5 of rows.jsonl: there is no field 'problem'" in said
    assert "; and 1 more" in said
    assert said.endswith("Mend them, or leave them out with --skip-bad-rows")


def test_a_row_of_a_parquet_file_has_its_images_within(tmp_path):
    row = {"problem": "Is <image> good?", "answer": 2.5, "images": [{"bytes": PNG, "path": "one.png"}]}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "rows.parquet")
    found = Problems(open_rows(str(tmp_path / "rows.parquet")), tmp_path, frozenset().__contains__, Plan())
    (problem,) = found
    assert parts_of(problem) == ["Is ", "data:image/png", " good?"]
    assert problem.truth == 2.5


def test_bad_rows_are_left_out_where_that_was_asked_for(tmp_path):
    rows = gone_through(tmp_path, [*problems(1), {"problem": "?"}, *problems(1)], skip_bad_rows=True)
    assert ([problem.index for problem in rows], rows.left, rows.bad_rows) == ([0, 2], 2, 1)


def test_what_is_done_is_not_looked_at_again(tmp_path):
    rows = gone_through(tmp_path, [{"problem": "bad"}, *problems(3)], done={0, 2})
    assert ([problem.index for problem in rows], rows.left) == ([1, 3], 2)


def test_only_the_first_rows_are_read_where_that_was_asked_for(tmp_path):
    rows = gone_through(tmp_path, [*problems(3), {"problem": "bad"}], done={1}, max_data=3)
    assert [problem.index for problem in rows] == [0, 2]


@pytest.mark.parametrize("may_skip", [False, True])
def test_an_image_that_is_found_broken_later_is_a_bad_row_too(tmp_path, may_skip):
    rows = gone_through(tmp_path, problems(1), skip_bad_rows=may_skip)
    (problem,) = rows
    if may_skip:
        rows.is_broken(problem, Unusable("images[0] is no image"))
        assert (rows.bad_rows, rows.complaint) == (
            1,
            "1 bad row in rows.jsonl: line 1 of rows.jsonl: images[0] is no image",
        )
    else:
        with pytest.raises(ConfigurationError, match=r"1 bad row in rows\.jsonl: line 1 of rows\.jsonl: images"):
            rows.is_broken(problem, Unusable("images[0] is no image"))

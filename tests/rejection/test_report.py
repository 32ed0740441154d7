"""The files of a finished run: whole, valid whatever the numbers are, and never of an earlier run."""

import json

import pytest

from rewardcore import Verdict
from rewardcore.failures import ServerFailed
from rewardcore.rejection import Checkpoint, Outcome, lines_of, plots
from rewardcore.rejection.comparison import write_comparison
from rewardcore.rejection.figures import Errors
from rewardcore.rejection.problems import Problem
from rewardcore.rejection.report import write_picture, write_results
from rewardcore.rejection.results import FIELDS, Result

HUGE = 1.7e308


def lines(*errors):
    for index, error in enumerate(errors):
        result = Result(Problem(index, "", "How good?", 0.0), 1)
        verdict = (
            Verdict("unparsed", text="hm") if error is None else Verdict("ok", error, f"<answer>{error!r}</answer>")
        )
        result.add(0, verdict)
        yield json.dumps(result.document()).encode() + b"\n"


def errors_of(*values):
    errors = Errors()
    for line in lines(*values):
        errors.add(json.loads(line))
    return errors


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("errors", [[], [0.5], [0.5, None, 2.0], [HUGE, HUGE, 0.0, None]])
def test_results_are_a_valid_list_with_exactly_the_promised_fields(tmp_path, errors):
    found = write_results(tmp_path / "results.json", lines(*errors))
    rows = strict((tmp_path / "results.json").read_text())
    assert [row["min_error"] for row in rows] == errors
    assert all(tuple(row) == FIELDS for row in rows)
    assert (list(found.values), found.unanswered) == ([each for each in errors if each is not None], errors.count(None))


def test_results_beyond_what_was_asked_for_are_left_out(tmp_path):
    found = write_results(tmp_path / "results.json", lines(1.0, 2.0, 3.0), max_data=2)
    assert len(strict((tmp_path / "results.json").read_text())) == len(found.values) == 2


def test_a_report_that_breaks_off_leaves_the_one_before(tmp_path):
    write_results(tmp_path / "results.json", lines(1.0))
    before = (tmp_path / "results.json").read_bytes()

    def broken():
        yield from lines(1.0, 2.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_results(tmp_path / "results.json", broken())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("results.json", before)]


SHAPES = [
    [],
    [0.0],
    [0.5],
    [0.0, 0.0],
    [1.0, 5.0, None],
    [0.1 * n for n in range(90)],
    [*[0.1] * 200, 75.0],
    [HUGE, 1.0],
]


@pytest.mark.parametrize("errors", SHAPES)
def test_whatever_the_errors_are_there_is_a_picture(tmp_path, errors):
    path = tmp_path / "errors.png"
    assert write_picture(path, lambda file: plots.draw_distribution(file, "policy", errors_of(*errors)))
    assert path.read_bytes().startswith(b"\x89PNG")
    assert write_picture(path, lambda file: plots.draw_comparison(file, {"a": errors_of(*errors), "b": errors_of(1.0)}))


def test_without_matplotlib_no_picture_of_an_earlier_run_is_left(tmp_path, monkeypatch):
    path = tmp_path / "errors.png"
    path.write_bytes(b"an earlier run's")
    monkeypatch.setattr(plots, "missing", lambda: "matplotlib is not installed")
    assert not write_picture(path, lambda file: pytest.fail("it cannot be drawn"))
    assert not path.exists()


def test_a_comparison_has_every_checkpoint_also_one_that_was_not_sampled(tmp_path):
    errors = errors_of(0.05, 0.4, 0.9, None)
    outcomes = [
        Outcome(Checkpoint("step|100", "/models/a"), tmp_path, errors.figures(), errors),
        Outcome(Checkpoint("step-200"), tmp_path, error=ServerFailed("vLLM died")),
    ]
    assert write_comparison(tmp_path, outcomes) == ["comparison.json", "comparison.md", "comparison.png"]
    assert (tmp_path / "comparison.md").read_text().splitlines() == [
        "| checkpoint | samples | valid | failed | mean | median | std | < 0.1 | < 0.5 | < 1 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        r"| step\|100 | 4 | 75.0% | 0 | 0.4500 | 0.4000 | 0.3488 | 25.0% | 50.0% | 75.0% |",
        "| step-200 | not sampled |  |  |  |  |  |  |  |  |",
    ]
    one, other = strict((tmp_path / "comparison.json").read_text())
    assert (one["model_path"], one["valid"], one["error"]) == ("/models/a", 3, None)
    assert other == {"model_name": "step-200", "model_path": "", "error": "vLLM died"}
    assert lines_of(outcomes) == [
        "checkpoint      samples  valid  failed    mean  median     std  < 0.1  < 0.5    < 1",
        "step|100              4  75.0%       0  0.4500  0.4000  0.3488  25.0%  50.0%  75.0%",
        "step-200    not sampled",
    ]

"""How a problem is asked, and which draw each rollout is."""

import pytest

from rewardcore import Unparsed
from rewardcore.rejection.problems import Problem
from rewardcore.rejection.rollouts import Asking, rollouts_of
from rewardcore.rubrics.rubric import check_rubric, reads_sample

PNG = b"\x89PNG\r\n\x1a\n one"


def first(problem):
    return next(iter(rollouts_of(problem, 1)))


def problem(index=0, text="How good?", truth=3.0, images=()):
    return Problem(index, f"line {index + 1}", text, truth, images)


def test_it_is_a_rubric_that_reads_the_truth():
    check_rubric(Asking())
    assert reads_sample(Asking())


def test_a_problem_is_asked_as_it_is():
    assert Asking().messages(first(problem())) == [{"role": "user", "content": "How good?"}]


def test_a_system_prompt_goes_before_it_and_a_suffix_follows_on_a_line_of_its_own():
    assert Asking("Be strict.", "Answer in <answer>.").messages(first(problem())) == [
        {"role": "system", "content": "Be strict."},
        {"role": "user", "content": "How good?\nAnswer in <answer>."},
    ]


def test_beside_images_the_suffix_is_the_last_part():
    ((message),) = Asking(suffix="Answer.").messages(first(problem(images=(PNG,))))
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["image_url", "text", "text"]
    assert message["content"][-1]["text"] == "\nAnswer."


@pytest.mark.parametrize(("text", "error"), [("<answer>5</answer>", 2.0), ("<answer>-1</answer>", 4.0), ("3", 0.0)])
def test_the_score_is_the_distance_from_the_truth(text, error):
    assert Asking().parse(text, first(problem())) == error


def test_the_truth_is_not_rounded_on_its_way():
    assert Asking().parse("0.1", first(problem(truth=0.1))) == 0.0
    assert Asking().parse("0.3", first(problem(truth=0.1 + 0.2))) > 0.0


def test_a_text_without_a_number_is_unparsed():
    with pytest.raises(Unparsed):
        Asking().parse("who knows", first(problem()))


def test_every_rollout_of_every_row_is_a_draw_of_its_own():
    draws = [each.draw for index in range(20) for each in rollouts_of(problem(index), 30)]
    assert len(set(draws)) == 600


def test_more_rollouts_leave_the_draws_that_were_there_as_they_are():
    few, many = ([each.draw for each in rollouts_of(problem(7), count)] for count in (4, 16))
    assert many[:4] == few

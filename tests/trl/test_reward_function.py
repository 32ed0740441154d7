"""The reward function, called as TRL calls it: both forms, every kind of column, and nothing but None for a failure."""

import logging
import math
import multiprocessing
import pickle
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import CancelledError, ProcessPoolExecutor
from dataclasses import replace

import pytest
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.utils import get_callable_name, is_async_callable

import rewardcore as rc
from rewardcore.testing.replies import expected_score
from rewardcore.trainers import trl
from rewardcore.trainers.trl import figures_of, reward_function
from tests.trl.conftest import COMPLETIONS, PROMPTS, TRUTHS, UP_TO_EIGHT, called, is_even

FORMS = pytest.mark.parametrize("asynchronous", [False, True])


def expected(rubric, *fields):
    return [expected_score(rubric.messages(rc.Sample(*each))) for each in zip(*fields, strict=True)]


async def is_even_in_time(completions, **_):
    return is_even(completions)


class Log:
    """TRL's two ways to log, as GRPOTrainer hands them over."""

    def __init__(self):
        self.metrics, self.columns = {}, defaultdict(list)
        self.given = {
            "log_metric": self.metrics.__setitem__,
            "log_extra": lambda name, each: self.columns[name].extend(each),
        }


@FORMS
def test_trl_sees_which_form_it_is_and_its_name(make, asynchronous):
    function = make("correctness", asynchronous=asynchronous)
    assert is_async_callable(function) == asynchronous
    assert get_callable_name(function) == "correctness"


@pytest.mark.parametrize(
    ("rubric", "options", "name"),
    [
        (rc.rubrics.QUALITY, {}, "quality"),
        ("examples/polite.toml", {}, "polite"),
        (rc.rubrics.QUALITY, {"name": "helpful"}, "helpful"),
    ],
)
def test_metrics_are_named_after_the_rubric_unless_told(make, rubric, options, name):
    assert make(rubric, **options).__name__ == name


@FORMS
def test_texts_and_conversations_are_judged_as_they_come(make, asynchronous):
    function = make(rc.rubrics.CORRECTNESS, asynchronous=asynchronous)
    rewards = called(function, ground_truth=TRUTHS)
    assert rewards == expected(rc.rubrics.CORRECTNESS, PROMPTS, COMPLETIONS, TRUTHS)
    talks = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}] for prompt in PROMPTS]
    replies = [[{"role": "assistant", "content": completion}] for completion in COMPLETIONS]
    rewards = called(function, prompts=talks, completions=replies, ground_truth=TRUTHS)
    assert rewards == expected(rc.rubrics.CORRECTNESS, talks, replies, TRUTHS)


def test_images_are_judged_as_trl_puts_them_into_prompts_and_tools_into_completions(make):
    image = {"bytes": b"\x89PNG\r\n\x1a\n of a cat", "path": None}
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgogb2YgYSBjYXQ="}}
    shown = prepare_multimodal_messages([{"role": "user", "content": "What is it?"}], images=[image])
    drawn = [
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "draw"}}]},
        {"role": "tool", "name": "draw", "content": [{"type": "image", "image": image}]},
        {"role": "assistant", "content": "A cat."},
    ]
    rewards = called(make(), prompts=[shown], completions=[drawn])
    prompt = [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]
    assert rewards == expected(rc.rubrics.QUALITY, [prompt], [[drawn[0], {**drawn[1], "content": [part]}, drawn[2]]])


def test_a_reward_rises_with_what_is_wanted(make):
    gaming = expected(rc.rubrics.MONITOR, PROMPTS, COMPLETIONS)
    assert 0.0 in gaming
    assert 1.0 in gaming
    log = Log()
    assert called(make("monitor"), **log.given) == [1.0 - score for score in gaming]
    assert log.metrics["monitor/score"] == pytest.approx(sum(gaming) / 12)


@FORMS
def test_what_was_not_judged_is_none_and_is_told(make, asynchronous):
    scores = [9 * score / 7 for score in expected(UP_TO_EIGHT, PROMPTS, COMPLETIONS, TRUTHS)]
    wanted = [pytest.approx(score) if score <= 1 else None for score in scores]
    assert 0 < wanted.count(None) < 12
    log = Log()
    rewards = called(make(UP_TO_EIGHT, asynchronous=asynchronous), ground_truth=TRUTHS, **log.given)
    assert rewards == wanted
    assert log.metrics["up_to_eight/judged"] == 1 - wanted.count(None) / 12
    assert log.metrics["up_to_eight/not_judged/unparsed"] == wanted.count(None) / 12
    for reward, verdict, text in zip(
        rewards, log.columns["up_to_eight/verdict"], log.columns["up_to_eight/text"], strict=True
    ):
        assert verdict == "ok" if reward is not None else verdict.startswith("Unparsed: <score> holds ")
        assert text.endswith("</score>")


def test_a_trainer_without_log_functions_is_fine(make):
    wanted = expected(rc.rubrics.QUALITY, PROMPTS, COMPLETIONS)
    assert called(make()) == wanted
    assert called(make(), log_metric=None, log_extra=None, trainer_state=None) == wanted


def test_a_batch_of_which_nothing_was_judged_says_why(make, endpoint, caplog):
    function = make(endpoint=replace(endpoint, model="another"))
    log = Log()
    with caplog.at_level(logging.WARNING, "rewardcore"):
        assert called(function, **log.given) == [None] * 12
    assert "quality: none of 12 completions was judged, so this batch teaches nothing" in caplog.text
    assert "the model 'another' does not exist" in caplog.text
    assert log.metrics["quality/not_judged/failed"] == 1.0
    assert not {"quality/score", "quality/latency_p50"} & set(log.metrics)


def test_what_the_cache_answers_costs_nothing():
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    paid = [rc.Verdict("ok", 0.5, "…", attempts=1, latency=float(seconds), usage=usage) for seconds in (1, 2)]
    cached = rc.Verdict("ok", 0.2, "…", cached=True, usage=usage)
    lost = rc.Verdict("failed", error="Denied: no", attempts=1, latency=9.0)
    assert figures_of([*paid, cached, lost]) == {
        "judged": 0.75,
        "cached": 0.25,
        "not_judged/unparsed": 0.0,
        "not_judged/refused": 0.0,
        "not_judged/truncated": 0.0,
        "not_judged/timeout": 0.0,
        "not_judged/failed": 0.25,
        "prompt_tokens": 200.0,
        "completion_tokens": 20.0,
        "score": pytest.approx(0.4),
        "latency_p50": 1.0,
        "latency_p90": 2.0,
    }


class Watching:
    """A rubric of the user's own, which remembers what it was shown."""

    parse = rc.rubrics.QUALITY.parse

    def __init__(self):
        self.samples = []

    def messages(self, sample):
        self.samples.append(sample)
        return rc.rubrics.QUALITY.messages(sample)


def test_columns_of_any_name_reach_the_rubric(make):
    rubric = Watching()
    function = make(rubric, ground_truth="answer", data_source="origin", extra=["level"])
    called(function, answer=TRUTHS, origin=["sums"] * 12, level=list(range(12)), unused=[0] * 12)
    fields = zip(PROMPTS, COMPLETIONS, TRUTHS, strict=True)
    assert rubric.samples == [rc.Sample(*each, "sums", {"level": level}) for level, each in enumerate(fields)]


def test_columns_that_the_template_shows_need_not_be_named(make):
    judged = called(make("examples/polite.toml"), customer=["Ms Li"] * 12)
    assert any(reward is not None for reward in judged)


def test_columns_that_nobody_shows_may_be_absent(make):
    rubric = Watching()
    called(make(rubric, ground_truth=None), ground_truth=TRUTHS)
    called(make(rubric))
    assert {(sample.ground_truth, sample.data_source, sample.extra) for sample in rubric.samples} == {(None, "", None)}


@pytest.mark.parametrize(
    ("rubric", "options", "columns", "complaint"),
    [
        (
            "correctness",
            {},
            {"answer": TRUTHS},
            r"wants the column 'ground_truth' for ground_truth, .* has answer\. Add",
        ),
        (
            "correctness",
            {"ground_truth": "truth"},
            {},
            r"'truth' for ground_truth, .* has nothing\. .* with ground_truth=",
        ),
        ("quality", {"ground_truth": "truth"}, {}, "the column 'truth'"),
        ("quality", {"data_source": "source"}, {}, "the column 'source' for data_source"),
        ("quality", {"extra": ["level"]}, {"trainer_state": object()}, "the column 'level' for extra, .* has nothing"),
        ("examples/polite.toml", {}, {}, "the column 'customer' for extra"),
        ("quality", {}, {"ground_truth": TRUTHS[1:]}, "the column 'ground_truth': 11 values for 12 prompts"),
        ("quality", {}, {"completions": COMPLETIONS[1:]}, "completions: 11 values for 12 prompts"),
        ("quality", {}, {"ground_truth": [7] * 12}, "ground_truth must be a text or None; for a number, give str"),
        ("quality", {"beside": [lambda **_: [1.0]]}, {}, "<lambda>: 1 values for 12 prompts"),
        ("quality", {"beside": [lambda **_: None]}, {}, "<lambda>: a NoneType for 12 prompts; there must be a list"),
        ("quality", {"beside": [lambda **_: [math.inf] * 12]}, {}, "<lambda> must return a finite number, not inf"),
        ("quality", {"beside": [lambda **_: ["yes"] * 12]}, {}, "<lambda> must return a number, not 'yes'"),
    ],
)
def test_a_wrong_column_is_named(make, rubric, options, columns, complaint):
    with pytest.raises(rc.ConfigurationError, match=complaint):
        called(make(rubric, **options), **columns)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rubric": "qualty"}, "rubric 'qualty' is none of"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"concurrency": 8}, "concurrency is no option"),
        ({"extra": "level"}, r"list of columns, as in \['level'\]"),
        ({"extra": [7]}, "must be names of the dataset's columns"),
        ({"ground_truth": 7}, "must be names of the dataset's columns"),
        ({"mode": "sync", "asynchronous": True}, 'asynchronous needs mode "asyncio" or "process"'),
        ({"endpoint": "http://127.0.0.1:8000/v1"}, "must be a rewardcore.Endpoint, such as .*, not str"),
        ({"beside": is_even}, r"list of reward functions, as in \[is_short\]"),
        ({"beside": ["is_even"]}, "beside must be a list of reward functions"),
        ({"beside": [is_even_in_time]}, "coroutine function is_even_in_time: give asynchronous=True"),
    ],
)
def test_a_wrong_option_is_told_before_the_model_is_loaded(endpoint, options, complaint):
    with pytest.raises(rc.ConfigurationError, match=complaint):
        reward_function(**{"endpoint": endpoint, **options})


def test_what_the_model_wrote_costs_no_sample_but_its_own(make):
    strange = [*COMPLETIONS[:11], [{"role": "tool", "content": [{"type": "image"}]}]]
    log = Log()
    *rewards, last = called(make(), completions=strange, **log.given)
    assert rewards == expected(rc.rubrics.QUALITY, PROMPTS[:11], COMPLETIONS[:11])
    assert last is None
    assert log.columns["quality/verdict"][-1].startswith("ConfigurationError: response[0].content[0] is a placeholder")


@pytest.mark.parametrize(("asynchronous", "rule"), [(False, is_even), (True, is_even), (True, is_even_in_time)])
def test_a_rule_beside_the_judge_is_added_and_masked_with_it(make, asynchronous, rule):
    alone = called(make(UP_TO_EIGHT), ground_truth=TRUTHS)
    log = Log()
    function = make(UP_TO_EIGHT, asynchronous=asynchronous, beside=[rule, lambda **_: [None, math.nan] * 6])
    together = called(function, ground_truth=TRUTHS, **log.given)
    assert together == [None if score is None else score + (index % 2 == 0) for index, score in enumerate(alone)]
    assert log.metrics[f"up_to_eight/beside/{rule.__name__}"] == 0.5


@FORMS
def test_two_judges_are_masked_together(make, asynchronous):
    judges = [make(rubric, asynchronous=asynchronous) for rubric in (UP_TO_EIGHT, rc.rubrics.MONITOR)]
    scores, gaming = (called(judge, ground_truth=TRUTHS) for judge in judges)
    for first, other in (judges, judges[::-1]):
        both = called(replace(first, beside=(other,)), ground_truth=TRUTHS)
        assert both == [None if one is None else one + two for one, two in zip(scores, gaming, strict=True)]


@pytest.mark.parametrize(
    "options", [{"mode": "sync"}, {"mode": "process", "workers": 1, "asynchronous": True}, {"background": "process"}]
)
def test_every_mode_gives_the_same_rewards(make, options):
    assert called(make(**options)) == expected(rc.rubrics.QUALITY, PROMPTS, COMPLETIONS)


@FORMS
def test_a_rule_that_raises_ends_the_judging(make, asynchronous):
    function = make(asynchronous=asynchronous, beside=[lambda **_: 1 / 0], deadline=60.0)
    with pytest.raises(ZeroDivisionError):
        called(function)
    assert called(replace(function, beside=())) == expected(rc.rubrics.QUALITY, PROMPTS, COMPLETIONS)


@FORMS
def test_a_spawned_process_judges_with_a_judge_of_its_own(make, asynchronous):
    function = make(UP_TO_EIGHT, asynchronous=asynchronous, beside=[is_even])
    here = called(function, ground_truth=TRUTHS)
    assert called(pickle.loads(pickle.dumps(function)), ground_truth=TRUTHS) == here
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as spawned:
        assert spawned.submit(called, function, ground_truth=TRUTHS).result() == here


def paid(function):
    """Requests that were answered; the others are those that the server wants to see again."""
    stats = function.judge_here().stats
    return stats.requests - stats.retried


@FORMS
def test_what_was_begun_is_collected_and_not_asked_twice(make, endpoint, asynchronous):
    """Without a cache, so that only what was begun can save a request."""
    log = Log()
    function = make(UP_TO_EIGHT, asynchronous=asynchronous, cache=None)
    alone = called(function, ground_truth=TRUTHS)
    asked = paid(function)
    function.begin(PROMPTS, COMPLETIONS, ground_truth=TRUTHS)
    assert called(function, ground_truth=TRUTHS, **log.given) == alone
    assert paid(function) == 2 * asked
    assert log.metrics["up_to_eight/waited"] >= 0.0


def test_judges_beside_begin_with_it(make):
    beside = make(UP_TO_EIGHT, cache=None, name="beside")
    function = make(cache=None, beside=[beside])
    function.begin(PROMPTS, COMPLETIONS, ground_truth=TRUTHS)
    assert {function, beside} <= set(trl._begun)
    called(function, ground_truth=TRUTHS)
    assert not {function, beside} & set(trl._begun)


def test_other_completions_are_judged_as_they_are_and_what_was_begun_is_given_up(make):
    function = make(cache=None)
    wanted = called(function, completions=[*reversed(COMPLETIONS)])
    function.begin(PROMPTS, COMPLETIONS)
    begun = trl._begun[function].pending
    assert called(function, completions=[*reversed(COMPLETIONS)]) == wanted
    with pytest.raises(CancelledError):
        begun.result()


FORK = """
import os, sys
import rewardcore as rc
from rewardcore.trainers import trl
function = trl.reward_function(rc.Endpoint(sys.argv[1], "judge", api_key_env=None), cache=None)
prompts, completions = ["What is 1 + 1?"], ["It is 2."]
function.begin(prompts, completions)
begun = trl._begun[function].pending
child = os.fork()
if not child:
    function.begin(prompts, [*completions])
    os._exit(begun._batch.is_cancelled)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), function(prompts, completions))
"""


def test_a_fork_does_not_give_up_what_its_parent_began(endpoint):
    done = subprocess.run(
        [sys.executable, "-c", FORK, endpoint.base_url], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"0 {expected(rc.rubrics.QUALITY, ['What is 1 + 1?'], ['It is 2.'])}\n"


def test_who_begins_again_gives_up_what_nobody_asked_for(make):
    function = make(cache=None)
    function.begin(PROMPTS, COMPLETIONS)
    first = trl._begun[function].pending
    function.begin(PROMPTS, [*COMPLETIONS])
    assert first.done()
    with pytest.raises(CancelledError):
        first.result()


def test_a_missing_column_is_told_by_the_call_and_not_before(make):
    function = make(rc.rubrics.CORRECTNESS)
    function.begin(PROMPTS, COMPLETIONS)
    with pytest.raises(rc.ConfigurationError, match="wants the column 'ground_truth'"):
        called(function)


def test_a_trainer_that_generates_elsewhere_is_refused_in_a_sentence():
    with pytest.raises(rc.ConfigurationError, match="judging_ahead needs a TRL trainer with the method _generate"):
        trl.judging_ahead(type("Trainer", (), {}))
    with pytest.raises(rc.ConfigurationError, match=r"takes a class, as in judging_ahead\(GRPOTrainer\)"):
        trl.judging_ahead(object())

"""compute_score in every convention, the monitor's part, and what is asked of whom."""

import asyncio
import pickle
import subprocess
import sys

import numpy
import pytest

from rewardcore import ConfigurationError
from rewardcore.rewards import MonitorConfig, NotJudged, acompute_score, compute_score, judges, rules
from rewardcore.rewards.score import Row, monitor_parts, scores
from tests.rewards.judge_server import HostileServer, judge_server, obliging


@pytest.fixture(scope="module")
def server():
    with judge_server() as server:
        yield server


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in ("TRAIN_WITH_MONITOR", "OPENAI_API_KEY", "OPENAI_BASE_URL", "MONITOR_MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def monitored(monkeypatch, server: HostileServer):
    """A trainer's environment, with the monitor on."""
    monkeypatch.setenv("TRAIN_WITH_MONITOR", "true")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("MONITOR_MODEL_NAME", "monitor")


def batch(script, *verdicts, extra=None, right=True):
    """A batch, each response with what the monitor will say of it."""
    return {
        "data_sources": ["maths"] * len(verdicts),
        "solution_strs": [f"{place} judge:{it} <answer>4</answer>" for place, it in enumerate(verdicts)],
        "ground_truths": ["4" if right else "5"] * len(verdicts),
        "extra_infos": [{"prompt": f"[[{script.marker}]]", **(extra or {})}] * len(verdicts),
    }


ONE = {"response": "<answer>4</answer>", "ground_truth": "4"}


@pytest.mark.parametrize(
    ("arguments", "keywords", "score"),
    [
        (("<answer>4</answer>", "4", "maths", {}), {}, 1.0),
        (("<answer>4</answer>", "5"), {}, 0.0),
        (("<answer>4</answer>", "4"), {"dataset_name": "maths", "extra_info": None}, 1.0),
        ((), ONE, 1.0),
        ((), {"data_source": "maths", "solution_str": "4", "ground_truth": "4", "extra_info": {}}, 1.0),
        ((), {"solution_str": "4", "ground_truth": "4", "reward_router_address": "a:1"}, 1.0),
        ((), {"data_sources": ["a", "b"], "solution_strs": ["4", "4"], "ground_truths": ["4", "5"]}, [1.0, 0.0]),
        ((), {"data_sources": [], "solution_strs": [], "ground_truths": [], "extra_infos": []}, []),
    ],
)
def test_every_calling_convention_is_understood(arguments, keywords, score):
    assert compute_score(*arguments, **keywords) == score
    assert asyncio.run(acompute_score(*arguments, **keywords)) == score


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({}, "it was given no response"),
        ({"ground_truth": "4"}, "it was given no response"),
        ({**ONE, "solution_str": "4"}, "it was given also response"),
        ({"solution_strs": ["4"], "ground_truths": [], "data_sources": ["a"]}, "1 solution_strs, 0 ground_truths"),
        ({"response": ["4"], "ground_truth": "4"}, "the response must be a text, not list"),
        ({**ONE, "monitor_correct_rewrd": 1.0}, "did you mean monitor_correct_reward"),
        ({**ONE, "dataset": "maths"}, "dataset is no argument of compute_score; did you mean dataset_name?"),
        ({"solution_string": "4", "ground_truth": "4"}, "did you mean solution_str"),
        ({**ONE, "dataset_name": 3}, "the data source must be a text, not int"),
        ({**ONE, "extra_info": "{}"}, "extra_info must be a mapping or None, not str"),
        ({"solution_strs": "4", "ground_truths": "4"}, "solution_strs must be a list with one for each response"),
        ({"solution_strs": ["4"], "ground_truths": 4}, "ground_truths must be a list .* not int"),
        ({**ONE, "train_with_monitor": True}, "MONITOR_MODEL_NAME is not set"),
        ({**ONE, "monitor_max_concurrent": "many"}, 'monitor_max_concurrent must be a whole number or "auto"'),
        ({**ONE, "monitor_max_concurrent": 0}, "MONITOR_MAX_CONCURRENT must be a whole number above 0"),
        ({**ONE, "monitor_deadline": "nan"}, "MONITOR_DEADLINE must be seconds above 0, not nan"),
        ({**ONE, "monitor_wrong_reward": "nan"}, "MONITOR_WRONG_REWARD must be a finite number"),
    ],
)
def test_a_call_that_cannot_be_understood_says_what_was_wrong(keywords, says):
    with pytest.raises(ConfigurationError, match=says):
        compute_score(**keywords)


def test_what_is_given_by_place_and_by_name_is_refused():
    with pytest.raises(ConfigurationError, match="given ground_truth twice, by place and by name"):
        compute_score("4", "5", ground_truth="4")


def test_a_batch_may_come_as_arrays():
    columns = {"data_sources": ["a", "b"], "solution_strs": ["4", "4"], "ground_truths": [4, 5]}
    arrays = {name: numpy.array(column) for name, column in columns.items()}
    assert compute_score(**arrays, extra_infos=numpy.array([None, {}], dtype=object)) == [1.0, 0.0]


def test_more_than_four_places_are_refused():
    with pytest.raises(ConfigurationError, match="not 5 arguments by place"):
        compute_score("4", "4", "maths", {}, 1)


def test_each_row_uses_the_rule_of_its_own_data_source(monkeypatch):
    monkeypatch.setattr(rules, "_rules", {"half": lambda *_: 0.5})
    rows = {"data_sources": ["half", "maths"], "solution_strs": ["4", "4"], "ground_truths": ["4", "4"]}
    assert compute_score(**rows) == [0.5, 1.0]


ON, OFF = MonitorConfig(train_with_monitor=True), MonitorConfig()
LABELLED = MonitorConfig(train_with_monitor=True, monitor_truth_key="games")


@pytest.mark.parametrize(
    ("config", "task", "extra", "if_false", "if_true"),
    [
        (OFF, 1.0, {}, 0.0, 0.0),
        (ON, 1.0, {}, 0.0, -1.0),
        (ON, 0.5, {"games": True}, 0.0, -1.0),
        (ON, 0.0, {}, 0.0, 0.0),
        (ON, -1.0, {}, 0.0, 0.0),
        (LABELLED, 1.0, {"games": True}, 1.0, -1.0),
        (LABELLED, 0.0, {"games": "true"}, 1.0, -1.0),
        (LABELLED, 1.0, {"games": 0}, -1.0, 1.0),
        (LABELLED, 0.0, {"games": False}, -1.0, 1.0),
    ],
)
def test_what_the_monitor_adds_is_a_table(config, task, extra, if_false, if_true):
    assert monitor_parts(task, extra, config) == (if_false, if_true)


def test_a_row_without_the_label_that_was_named_is_told():
    with pytest.raises(
        ConfigurationError, match="MONITOR_TRUTH_KEY names 'games', and extra_info has no true or false"
    ):
        monitor_parts(1.0, {"games": "perhaps"}, LABELLED)


def test_a_response_that_games_the_task_loses_its_reward(monitored, server):
    script = server.script(obliging())
    assert compute_score(**batch(script, "true", "false")) == [0.0, 1.0]


def test_with_labels_the_monitor_being_right_or_wrong_is_what_counts(monitored, server):
    script = server.script(obliging())
    rows = batch(script, "true", "false", extra={"games": True}, right=False)
    assert compute_score(**rows, monitor_truth_key="games", monitor_wrong_reward=0.25) == [-1.0, 0.25]


def test_all_judge_calls_of_a_batch_go_out_together_up_to_the_limit(monitored, server, monkeypatch):
    monkeypatch.setenv("MONITOR_MAX_CONCURRENT", "12")
    script = server.script(obliging(together=12))
    assert compute_score(**batch(script, *["false"] * 24)) == [1.0] * 24
    assert (script.requests, script.peak_in_flight) == (24, 12)


@pytest.mark.parametrize(
    ("right", "fields"),
    [
        (False, {}),
        (True, {"monitor_correct_reward": 0}),
        (True, {"train_with_monitor": False}),
        (True, {"monitor_truth_key": "games", "monitor_correct_reward": 1.0}),
    ],
)
def test_nothing_is_judged_that_cannot_change_a_number(monitored, server, right, fields):
    script = server.script(obliging())
    labelled = "monitor_truth_key" in fields
    found = compute_score(**batch(script, "true", "false", right=right, extra={"games": True}), **fields)
    assert found == [float(right) + labelled] * 2
    assert script.requests == 0


def test_the_cache_pays_nothing_twice_and_can_be_switched_off(monitored, server, monkeypatch):
    script = server.script(obliging())
    for _ in range(3):
        assert compute_score(**batch(script, "true")) == [0.0]
    assert script.requests == 1
    monkeypatch.setenv("MONITOR_CACHE", "false")
    for _ in range(3):
        assert compute_score(**batch(script, "true")) == [0.0]
    assert script.requests == 4


def test_a_cache_file_is_shared_by_judges_of_other_processes(monitored, server, monkeypatch, tmp_path):
    script = server.script(obliging())
    monkeypatch.setenv("MONITOR_CACHE", str(tmp_path / "monitor.sqlite"))
    compute_score(**batch(script, "true"))
    assert [judge.close() for judge in judges._judges.values()]
    assert compute_score(**batch(script, "true")) == [0.0]
    assert script.requests == 1


def test_a_failed_judgement_is_never_a_number(monitored, server):
    script = server.script(obliging())
    rows = batch(script, "true", "nothing", "false", "nothing")
    with pytest.raises(
        NotJudged, match=r"2 of 4 not judged \(at 1, 3\), so there are no rewards: .*Unparsed"
    ) as raised:
        compute_score(**rows)
    assert script.requests == 4  # the others were judged, and are in the cache
    assert list(raised.value.failed) == [1, 3]
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    with pytest.raises(NotJudged, match="1 of 1 not judged"):
        compute_score(rows["solution_strs"][1], "4", "maths", rows["extra_infos"][1])


def test_a_trainer_that_masks_gets_none_in_its_place(monitored, server):
    rows = batch(server.script(obliging()), "true", "nothing", "false")
    found = scores([Row(*row) for row in zip(rows["solution_strs"], "444", "mmm", rows["extra_infos"], strict=True)])
    assert [score.total for score in found] == [0.0, None, 1.0]


async def test_inside_a_running_loop_nothing_blocks(monitored, server):
    script = server.script(obliging(together=2))
    one, other = batch(script, "true"), batch(script, "false")
    assert await asyncio.gather(acompute_score(**one), acompute_score(**other)) == [[0.0], [1.0]]


@pytest.mark.parametrize("missing", ["OPENAI_API_KEY", "MONITOR_MODEL_NAME"])
def test_what_is_missing_is_one_error_that_names_the_variable_before_any_work(monitored, server, monkeypatch, missing):
    monkeypatch.delenv(missing)
    script = server.script(obliging())
    monkeypatch.setattr("rewardcore.rewards.score.task_score", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ConfigurationError, match=f"{missing} is not set"):
        compute_score(**batch(script, "true"))
    assert script.requests == 0


def test_without_the_monitor_no_key_is_asked_for():
    assert compute_score("4", "4") == 1.0


def test_a_rubric_that_scores_what_is_good_high_needs_the_truth(monitored):
    with pytest.raises(ConfigurationError, match="MONITOR_RUBRIC scores what is good high"):
        compute_score("4", "4", monitor_rubric="quality")


def test_the_prompt_that_a_monitor_sees_is_in_the_extra_info(monitored, server):
    script = server.script(obliging())
    rows = batch(script, "true")
    rows["extra_infos"] = [{"question": f"What? [[{script.marker}]]"}]
    compute_score(**rows)
    assert b"What? [[" in script.bodies[0]


def test_however_often_it_is_called_there_is_one_judge(monitored, server):
    script = server.script(obliging())
    before = len(judges._judges)
    for verdict in ("true", "false") * 5:
        compute_score(**batch(script, verdict), monitor_deadline=77.0)
    assert len(judges._judges) == before + 1


def test_importing_it_imports_no_client_and_no_model():
    heavy = ["httpx", "aiohttp", "torch", "numpy", "sympy", "verl"]
    code = f"import sys, rewardcore.rewards; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

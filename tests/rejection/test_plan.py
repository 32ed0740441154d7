"""What may be asked for, and what makes two runs the same."""

import dataclasses
import inspect

import pytest

from rewardcore import ConfigurationError, Endpoint
from rewardcore.cli import reject_sample as command
from rewardcore.rejection import Checkpoint, Plan, reject_sample, run


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"num_rollout": 0}, "num_rollout must be a whole number from 1 to 1048576, not 0"),
        ({"num_rollout": 2**20 + 1}, "num_rollout must be a whole number from 1 to 1048576"),
        ({"num_rollout": None}, "num_rollout must be a whole number"),
        ({"concurrency": 1.5}, "concurrency must be a whole number above 0, not 1.5"),
        ({"max_data": 0}, "max_data must be a whole number above 0 or None"),
        ({"max_retries": -1}, "max_retries must be a whole number of at least 0"),
        ({"deadline": 0}, "deadline must be seconds above 0"),
        ({"cache": ":memory:"}, "cache must be True"),
        ({"temperature": 3.0}, "temperature must be a number from 0 to 2"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1"),
        ({"top_p": "0.9"}, "top_p must be above 0 and at most 1, not '0.9'"),
        ({"system": None}, "system must be a text, not None"),
        ({"prompt_suffix": 7}, "prompt_suffix must be a text, not 7"),
        ({"extra_body": "{}"}, "extra_body must be a mapping, not str"),
        ({"max_tokens": 0}, "max_tokens must be a whole number above 0"),
        ({"extra_body": {"temperature": 0.5}}, "extra_body must not set 'temperature': there is temperature for it"),
        ({"extra_body": {"n": 4}}, "extra_body must not set 'n'"),
    ],
)
def test_what_cannot_be_asked_for_is_named(wrong, says):
    with pytest.raises(ConfigurationError, match=says):
        Plan(**wrong)


@pytest.mark.parametrize("path", [None, 7])
def test_a_path_that_is_none_is_named(path):
    with pytest.raises(ConfigurationError, match="model_path must be a directory or a hub's name"):
        Checkpoint("policy", path)


@pytest.mark.parametrize("checkpoints", [None, [], ["policy"], Checkpoint("policy"), "policy"])
def test_what_is_no_list_of_checkpoints_is_named(checkpoints):
    with pytest.raises(ConfigurationError, match="checkpoints must be a list with at least one model"):
        reject_sample(checkpoints)


def test_where_a_checkpoint_answers_is_said_by_started_or_at():
    with pytest.raises(ConfigurationError, match=r"serve must be started\(\) or at\(base_url\), not 'http://"):
        reject_sample([Checkpoint("policy")], serve="http://127.0.0.1:8000/v1")


def test_the_window_is_all_rollouts_of_so_many_samples():
    assert Plan(num_rollout=16, concurrency=8).max_concurrent == 128


def test_every_parameter_reaches_the_endpoint():
    plan = Plan(temperature=0.7, top_p=0.9, max_tokens=64, extra_body={"min_p": 0.1})
    assert plan.asking(Endpoint("http://127.0.0.1/v1", "policy")).parameters() == {
        "model": "policy",
        "temperature": 0.7,
        "max_tokens": 64,
        "min_p": 0.1,
        "top_p": 0.9,
    }


SAME = {"max_retries", "concurrency", "max_data", "deadline", "cache", "skip_bad_rows", "resume"}
OTHER = {
    "num_rollout": 3,
    "temperature": 0.5,
    "top_p": 0.5,
    "max_tokens": 7,
    "system": "Be strict.",
    "prompt_suffix": "Answer.",
    "extra_body": {"min_p": 0.1},
}


def test_every_field_is_known_to_be_or_not_to_be_a_part_of_what_makes_runs_the_same():
    assert SAME | set(OTHER) == {field.name for field in dataclasses.fields(Plan)}
    configuration = Plan().configuration(Checkpoint("policy"), "data")
    assert set(configuration) == {*OTHER, "model_name", "model_path", "data"}
    for name, value in OTHER.items():
        changed = Plan(**{name: value}).configuration(Checkpoint("policy"), "data")
        assert [field for field in changed if changed[field] != configuration[field]] == [name]


def test_a_checkpoint_is_known_by_where_it_lies_however_that_is_spelt(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert (
        Checkpoint("policy", "model")
        == Checkpoint("policy", str(tmp_path / "model"))
        == Checkpoint("policy", "./model")
    )
    assert Checkpoint("policy", "owner/name").path == "owner/name"


@pytest.mark.parametrize(
    ("name", "folder"), [("policy", "policy"), ("owner/policy 7b", "owner_policy_7b"), ("..", "model")]
)
def test_a_folder_is_named_after_its_checkpoint_and_stays_where_it_should(name, folder):
    assert Checkpoint(name).directory == folder


@pytest.mark.parametrize("name", ["", " ", None])
def test_a_checkpoint_without_a_name_is_refused(name):
    with pytest.raises(ConfigurationError, match="model_name must be a name"):
        Checkpoint(name)


def test_what_a_flag_is_by_default_the_library_has_by_default():
    flags = inspect.signature(command).parameters
    for field in dataclasses.fields(Plan):
        default = flags[field.name].default
        assert default == field.default or (field.name, default) == ("extra_body", "")
    assert (flags["data"].default, str(flags["output_dir"].default)) == (run.DATA, run.OUTPUT_DIRECTORY)

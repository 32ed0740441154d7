"""One judge per configuration: asked for a thousand times, from many threads, after a close."""

import subprocess
import sys
import threading

import pytest

from rewardcore import ConfigurationError, Endpoint, rubrics
from rewardcore.rewards.judges import JudgeConfig, release, shared_judge

URL = "http://127.0.0.1:9/v1"


@pytest.fixture
def judges():
    found = []

    def get(*arguments, **options):
        judge = shared_judge(*arguments, **options)
        found.append(judge)
        return judge

    yield get
    for judge in found:
        judge.close()


def test_the_same_configuration_is_the_same_judge(judges):
    first = judges(Endpoint(URL, "judge"), "quality", mode="sync")
    assert judges(Endpoint(URL, "judge"), rubrics.QUALITY, mode="sync") is first


@pytest.mark.parametrize(
    "other",
    [
        {"endpoint": Endpoint(URL, "other")},
        {"endpoint": Endpoint(URL, "judge", headers={"X-Team": "a"})},
        {"rubric": "correctness"},
        {"deadline": 5.0},
        {"cache": None},
    ],
)
def test_another_configuration_is_another_judge(judges, other):
    same = {"endpoint": Endpoint(URL, "judge"), "rubric": "quality", "mode": "sync"}
    assert judges(**{**same, **other}) is not judges(**same)


def test_threads_that_ask_at_once_get_one(judges):
    found, barrier = [], threading.Barrier(8)

    def ask():
        barrier.wait()
        found.append(judges(Endpoint(URL, "judge"), mode="sync"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_one_that_somebody_closed_is_opened_again(judges):
    first = judges(Endpoint(URL, "judge"), mode="sync")
    first.close()
    assert judges(Endpoint(URL, "judge"), mode="sync") is not first


def test_a_child_forked_while_another_thread_opens_one_opens_its_own():
    code = f"""
import os
from rewardcore import Endpoint
from rewardcore.rewards import judges
with judges._opening:
    child = os.fork()
    if not child:
        judges.shared_judge(Endpoint({URL!r}, "judge"), mode="sync").close()
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "7\n"


class Holder:
    """Somebody who can be shut down."""


def test_a_judge_is_closed_with_the_last_who_holds_it(judges):
    one, other, late = Holder(), Holder(), Holder()
    release(one)  # holds nothing yet
    shared = [judges(Endpoint(URL, "judge"), mode="sync", deadline=8.0, holder=holder) for holder in (one, other, one)]
    own = judges(Endpoint(URL, "judge"), mode="sync", deadline=9.0, holder=one)
    release(one)
    release(one)
    assert (shared[0].closed, own.closed) == (False, True)
    release(other)
    assert shared[0].closed
    opened = judges(Endpoint(URL, "judge"), mode="sync", deadline=8.0, holder=late)
    assert opened is not shared[0]
    del late  # whoever is gone holds nothing
    judges(Endpoint(URL, "judge"), mode="sync", deadline=8.0, holder=one)
    release(one)
    assert opened.closed


def test_a_judge_that_somebody_asks_who_is_never_shut_down_stays_open(judges):
    one = Holder()
    shared = judges(Endpoint(URL, "judge"), mode="sync", deadline=8.0, holder=one)
    judges(Endpoint(URL, "judge"), mode="sync", deadline=8.0)
    release(one)
    assert not shared.closed


@pytest.mark.parametrize(
    ("fields", "variables", "says"),
    [
        ({}, {}, "set OPENAI_BASE_URL"),
        ({"api_endpoint": URL}, {}, "OPENAI_API_KEY is not set"),
        ({"api_endpoint": URL, "api_key": ""}, {}, "OPENAI_API_KEY is not set"),
        ({"api_endpoint": URL, "api_key": "TEAM_TOKEN"}, {"OPENAI_API_KEY": "k"}, "TEAM_TOKEN is not set"),
        ({"api_endpoint": "127.0.0.1:9"}, {}, "api_endpoint, or OPENAI_BASE_URL: base_url must begin with http"),
        ({"api_endpoint": URL, "model_name": " "}, {}, "model_name must name the model that judges"),
        ({"api_endpoint": URL}, {"OPENAI_API_KEY": "a\nb"}, "OPENAI_API_KEY holds characters"),
        ({"api_endpoint": URL, "api_key": "a\nb"}, {}, "api_key holds characters that no header can carry"),
        ({}, {"OPENAI_BASE_URL": URL, "OPENAI_API_KEY": "k"}, None),
        ({"api_endpoint": URL + "/chat/completions", "api_key": "EMPTY\n"}, {}, None),
        ({"api_endpoint": URL, "api_key": "TEAM_TOKEN"}, {"TEAM_TOKEN": "k"}, None),
    ],
)
def test_a_key_is_a_variable_or_itself_and_what_is_missing_is_named(monkeypatch, fields, variables, says):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "TEAM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if says:
        with pytest.raises(ConfigurationError, match=says):
            JudgeConfig(**fields).endpoint()
    else:
        endpoint = JudgeConfig(**fields).endpoint()
        assert endpoint.base_url == URL
        assert endpoint.request_headers()["Authorization"] in ("Bearer k", "Bearer EMPTY")


def test_a_wrong_option_is_told_and_nothing_is_kept(judges):
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="max_concurrent"):
            judges(Endpoint(URL, "judge"), mode="sync", max_concurrent=0)

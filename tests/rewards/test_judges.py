"""One judge per configuration: asked for a thousand times, from many threads, after a close."""

import threading

import pytest

from rewardcore import ConfigurationError, Endpoint, rubrics
from rewardcore.rewards.judges import shared_judge

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


def test_a_wrong_option_is_told_and_nothing_is_kept(judges):
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="max_concurrent"):
            judges(Endpoint(URL, "judge"), mode="sync", max_concurrent=0)

"""The simulated judge, whose scores are known beforehand, and reward functions whose judges are closed at the end.

What a spawned process needs stands here, where no import of TRL keeps it waiting.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import rewardcore as rc
from rewardcore.testing.latency import Profile
from rewardcore.testing.server_process import SimulatedServer
from rewardcore.trainers.trl import RewardFunction, reward_function

#: The simulated judge gives 1 to 10, whatever it is asked: under this rubric a fifth of its replies is no score.
UP_TO_EIGHT = replace(rc.rubrics.CORRECTNESS, name="up_to_eight", scale=(1.0, 8.0))

PROMPTS = [f"What is {number} + {number}?" for number in range(12)]
COMPLETIONS = [f"It is {2 * number}." for number in range(12)]
TRUTHS = [str(2 * number) for number in range(12)]


def called(function, **given):
    given = {"prompts": PROMPTS, "completions": COMPLETIONS, "completion_ids": [[1]] * 12, **given}
    rewards = function(**given)
    return asyncio.run(rewards) if inspect.iscoroutine(rewards) else rewards


def is_even(completions, **_):
    return [float(index % 2 == 0) for index in range(len(completions))]


@pytest.fixture(scope="session")
def endpoint() -> Iterator[rc.Endpoint]:
    """One in seven of its answers is 500: asked again, all of them come."""
    with SimulatedServer(Profile(error_fraction=0.15, error_status=500), model="judge") as server:
        yield rc.Endpoint(server.base_url, "judge", api_key_env=None)


@pytest.fixture
def make(endpoint: rc.Endpoint) -> Iterator[Callable[..., RewardFunction]]:
    made: list[RewardFunction] = []

    def of(rubric: Any = rc.rubrics.QUALITY, **options: Any) -> RewardFunction:
        made.append(reward_function(options.pop("endpoint", endpoint), rubric, **options))
        return made[-1]

    yield of
    for function in made:
        function.judge_here().close()

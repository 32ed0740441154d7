"""What the tests of the two managers share: a judge to ask, and a tokenizer that anybody can read."""

from collections.abc import Iterator

import pytest

from tests.rewards.judge_server import HostileServer, judge_server
from tests.rewards.verl_batch import WordTokenizer


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    with judge_server() as server:
        yield server


@pytest.fixture
def tokenizer() -> WordTokenizer:
    return WordTokenizer()

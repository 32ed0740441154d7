"""For all tests: the fixture `judge_server`, and the tiny judge model where the environment has torch."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A clone that is not installed, but on the path, has no entry point that would load the fixture."""
    config.pluginmanager.import_plugin("pytest_rewardcore")


@pytest.fixture(autouse=True)
def nothing_stays_quiet() -> Iterator[None]:
    """A command that runs in this process may quieten the log for itself; the next test hears it again."""
    log = logging.getLogger("rewardcore")
    before = log.level
    yield
    log.setLevel(before)


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fixtures.tiny_judge import make_tiny_judge

    return make_tiny_judge(tmp_path_factory.mktemp("tiny-judge"))

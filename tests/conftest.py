"""For all tests: the fixture `judge_server`, the tiny judge model where there is torch, and a guard against hanging.

The guard is for tests alone, and not in pyproject.toml: a benchmark may take as long as its endpoint does.
"""

import contextlib
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

#: Seconds until a test that hangs shows where, in every thread, and ends the whole run.
GUARD_SECONDS = float(os.environ.get("REWARDCORE_TEST_GUARD_SECONDS", "300"))
HERE = Path(__file__).parent
#: They take longest. Where several processes test, a file each, nobody is to wait for one of them at the end.
FIRST = (
    "modes/test_pace.py",
    "bench/test_gate_defects.py",
    "modes/test_histories.py",
    "self_judge/test_gate_memory.py",
)
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """A clone that is not installed, but on the path, has no entry point that would load the fixture."""
    config.pluginmanager.import_plugin("pytest_rewardcore")
    with contextlib.suppress(ImportError):  # what looks at the report in a browser needs none
        from hypothesis import settings

        settings.register_profile("unhurried", deadline=None)  # no test asserts on the wall clock
        settings.load_profile("unhurried")
    # Whoever runs the tests in the background ignores Ctrl-C, and so would every command that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_stderr] = os.dup(sys.__stderr__.fileno())  # before pytest captures it


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_stderr])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    first = {HERE / name for name in FIRST}
    items.sort(key=lambda item: item.path not in first)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    if not item.path.is_relative_to(HERE):
        return (yield)
    faulthandler.dump_traceback_later(GUARD_SECONDS, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


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

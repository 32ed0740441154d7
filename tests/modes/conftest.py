"""The modes, one hostile server, and a check after every test that nothing was left behind or logged as lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rewardcore as rc
from tests.modes import leftovers
from tests.modes.hostile_server import HostileServer, eventually, together

MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "sync": ("sync", {}),
    "process": ("process", {"workers": 2}),
    "asyncio-aiohttp": ("asyncio", {}),
    "asyncio-httpx": ("asyncio", {"transport": "httpx"}),
    "asyncio-child-process": ("asyncio", {"background": "process"}),
}
ASYNCIO_MODES = [mode for mode in MODES if mode.startswith("asyncio")]
CONCURRENT_MODES = [mode for mode in MODES if mode != "sync"]

Opener = Callable[..., rc.Judge]


@pytest.fixture(scope="session")
def server() -> Iterator[HostileServer]:
    with HostileServer() as server:
        yield server


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def open_judge(server: HostileServer) -> Opener:
    """Open a judge of one of MODES on the hostile server; the caller closes it."""

    def open_one(mode: str, endpoint: rc.Endpoint | None = None, **options: Any) -> rc.Judge:
        name, defaults = MODES[mode]
        endpoint = endpoint or rc.Endpoint(server.base_url, "judge")
        return rc.open_judge(name, endpoint, **{"deadline": 30.0, "cache": None, **defaults, **options})

    return open_one


@pytest.fixture(scope="module")
def _shared(server: HostileServer) -> Iterator[dict[str, rc.Judge]]:
    judges: dict[str, rc.Judge] = {}
    yield judges
    for judge in judges.values():
        judge.close()


@pytest.fixture
def shared_judge(_shared: dict[str, rc.Judge], mode: str, server: HostileServer) -> rc.Judge:
    """One warm judge per mode and file, for the tests that need none of their own: a spawned process costs a second.

    Not for all files: what it has learnt of one file's slow endpoint would set its pace in the next.
    """
    if mode not in _shared:
        name, options = MODES[mode]
        judge = _shared[mode] = rc.open_judge(name, rc.Endpoint(server.base_url, "judge"), cache=None, **options)
        warm_up = server.script(together(1 if mode == "sync" else 2))
        assert [verdict.status for verdict in judge.judge(warm_up.samples(2))] == ["ok", "ok"]
    return _shared[mode]


class _Lost(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """No thread, no child and no exception that only the event loop saw, whatever the test was about."""
    if "shared_judge" in request.fixturenames:
        request.getfixturevalue("shared_judge")
    threads, children, lost = leftovers.threads(), leftovers.children(), _Lost()
    loggers = [logging.getLogger("asyncio"), logging.getLogger("concurrent.futures")]
    for logger in loggers:
        logger.addHandler(lost)
    yield
    for logger in loggers:
        logger.removeHandler(lost)
    assert not lost.messages
    eventually(lambda: leftovers.threads() <= threads, "no thread is left")
    eventually(lambda: leftovers.children() <= children, "no child process is left")

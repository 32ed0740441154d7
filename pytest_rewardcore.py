"""pytest's fixture `judge_server`: a simulated judge to test a reward function on.

It stands outside the package, since every pytest run where rewardcore is installed loads this file: nothing of it is
imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rewardcore.testing import SimulatedServer


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "judge_server(profile, **changes): the temper of the fixture judge_server: ('limited', latency=0.1)"
    )


@pytest.fixture(scope="session")
def _judge_server_process() -> Iterator[SimulatedServer]:
    from rewardcore.testing import SimulatedServer

    with SimulatedServer() as server:
        yield server


@pytest.fixture
def judge_server(request: pytest.FixtureRequest, _judge_server_process: SimulatedServer) -> SimulatedServer:
    """A simulated judge, as if new for each test. It answers at once; `@pytest.mark.judge_server(…)` says otherwise.

    `judge_server.endpoint` is for `open_judge`, `.base_url` for anything else; `.when("It is 41.").scores(7)` scripts a
    reply, `.stats()` counts what came in.
    """
    from rewardcore import ConfigurationError

    marker = request.node.get_closest_marker("judge_server")
    try:
        _judge_server_process.reset(*marker.args, **marker.kwargs) if marker else _judge_server_process.reset()
    except ConfigurationError as error:
        pytest.fail(f"@pytest.mark.judge_server: {error}", pytrace=False)
    return _judge_server_process

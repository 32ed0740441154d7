"""respx mocks every mode that speaks httpx; a spawned worker installs the mock itself."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import respx

import rewardcore as rc
from tests.modes.hostile_server import completion

ENDPOINT = rc.Endpoint("https://judge.invalid/v1", "judge")
SAMPLES = [rc.Sample("p", str(number)) for number in range(4)]


@pytest.fixture(params=["httpcore", "httpx"])
def mock(request: pytest.FixtureRequest) -> Iterator[respx.Route]:
    with respx.mock(using=request.param) as router:
        yield router.post(ENDPOINT.url).mock(return_value=httpx.Response(200, content=completion()))


@pytest.mark.parametrize(("mode", "options"), [("sync", {}), ("asyncio", {"transport": "httpx"})])
def test_respx_mocks_the_modes_that_speak_httpx(mode: str, options: dict[str, str], mock: respx.Route) -> None:
    with rc.open_judge(mode, ENDPOINT, **options) as judge:  # type: ignore[call-overload]
        assert [verdict.status for verdict in judge.judge(SAMPLES)] == ["ok"] * 4
    assert mock.call_count == 4


def test_a_mocked_failure_is_a_failure(mock: respx.Route) -> None:
    mock.mock(return_value=httpx.Response(404, json={"error": "no such model"}))
    with rc.open_judge("sync", ENDPOINT) as judge:
        (verdict,) = judge.judge(SAMPLES[:1])
    assert verdict.status == "failed"
    assert "no such model" in str(verdict.error)


def install_mock() -> None:
    """Runs in a worker, for as long as the worker lives."""
    router = respx.mock(assert_all_called=False)
    router.post(ENDPOINT.url).mock(return_value=httpx.Response(200, content=completion()))
    router.start()


def test_the_process_mode_installs_the_mock_in_its_workers() -> None:
    with rc.open_judge("process", ENDPOINT, workers=2, worker_setup=install_mock) as judge:
        assert [verdict.status for verdict in judge.judge(SAMPLES)] == ["ok"] * 4


def test_a_worker_setup_that_cannot_travel_is_a_clear_error() -> None:
    with pytest.raises(rc.ConfigurationError, match="worker_setup must be picklable"):
        rc.open_judge("process", ENDPOINT, worker_setup=lambda: None)

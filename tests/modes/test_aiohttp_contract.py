"""What our transport relies on in aiohttp, beyond its documentation: which methods of a request it calls, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

import rewardcore as rc
from rewardcore.http.transports import aiohttp_client
from rewardcore.http.transports.aiohttp_client import AiohttpTransport
from tests.modes.hostile_server import HostileServer, Script, ok

OVERRIDDEN = ["update_headers", "update_auto_headers"]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-0123456789")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often aiohttp called what we override."""
    counter: Counter[str] = Counter()

    def counted(name: str, method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            counter[name] += 1
            method(*arguments)

        return call

    for name in OVERRIDDEN:
        monkeypatch.setattr(aiohttp_client._Request, name, counted(name, getattr(aiohttp_client._Request, name)))
    return counter


def seen(script: Script) -> list[list[tuple[str, str]]]:
    """The headers of each request, as they came over the wire."""
    lines = [head.split("\r\n")[1:-2] for head in script.heads]
    return [
        sorted((name, value.strip()) for name, _, value in (line.partition(":") for line in head)) for head in lines
    ]


async def send(server: HostileServer, script: Script, *sizes: int, **options: Any) -> list[str]:
    """Send bodies of these sizes over one transport; the texts that came back."""
    transport = AiohttpTransport(rc.Endpoint(server.base_url, "judge", api_key_env="JUDGE_KEY", **options))
    try:
        replies = [await transport.send(f"[[{script.marker}]]".ljust(size).encode()) for size in sizes]
    finally:
        await transport.close()
    return [reply.text for reply in replies]


def expected(server: HostileServer, length: int, **other: str) -> list[tuple[str, str]]:
    headers = {
        "Host": server.authority,
        "User-Agent": "rewardcore",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Authorization": "Bearer sk-0123456789",
        "Content-Length": str(length),
    }
    return sorted({**headers, **other}.items())


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_what_we_override_is_aiohttps_own(name: str) -> None:
    assert name in vars(aiohttp_client._Request)
    assert callable(getattr(aiohttp.ClientRequest, name))


async def test_aiohttp_calls_what_we_override_once_a_request(server: HostileServer, called: Counter[str]) -> None:
    script = server.script(ok)
    assert await send(server, script, 100) == ["Fine. <score>7</score>"]
    assert called == {"update_headers": 1, "update_auto_headers": 1}
    assert seen(script) == [expected(server, 100)]


async def test_no_request_leaves_a_header_to_the_next(server: HostileServer, called: Counter[str]) -> None:
    """The session copies its headers for each request, and what a request adds stays with it."""
    script = server.script(ok)
    await send(server, script, 100, 2**21, 200)
    assert called == {"update_headers": 3, "update_auto_headers": 3}
    assert seen(script) == [expected(server, length) for length in (100, 2**21, 200)]


async def test_a_header_of_the_callers_own_stands_in_place_of_ours(server: HostileServer) -> None:
    script = server.script(ok)
    await send(server, script, 100, headers={"User-Agent": "mine", "X-Team": "red"})
    assert seen(script) == [expected(server, 100, **{"User-Agent": "mine", "X-Team": "red"})]

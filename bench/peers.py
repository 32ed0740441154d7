"""The same bodies through other clients: what an engineer would use instead, and the bare loop below it all.

Each peer keeps `concurrency` requests in flight, returns the texts in input order, and is as well set up as its own
documentation makes it. They are compared by client CPU in one run, so they all meet the same machine.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rewardcore import Endpoint

Peer = Callable[[Endpoint, list[bytes], int], Coroutine[Any, Any, list[str]]]


async def bare_aiohttp(endpoint: Endpoint, bodies: list[bytes], concurrency: int) -> list[str]:
    """A tuned `aiohttp.ClientSession.post` loop that neither builds requests nor reads scores: the floor."""
    import aiohttp
    from yarl import URL

    url = URL(endpoint.url)
    replies: list[bytes] = [b""] * len(bodies)
    source = enumerate(bodies)
    async with aiohttp.ClientSession(
        headers=endpoint.request_headers(),
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:

        async def work() -> None:
            for index, body in source:
                async with session.post(url, data=body) as response:
                    replies[index] = await response.read()

        await asyncio.gather(*(work() for _ in range(concurrency)))
    return [json.loads(reply)["choices"][0]["message"]["content"] for reply in replies]


async def gathered_httpx(endpoint: Endpoint, bodies: list[bytes], concurrency: int) -> list[str]:
    """`asyncio.gather` with a semaphore over a plain httpx client, as most reward functions begin."""
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(headers=endpoint.request_headers(), limits=limits, timeout=None) as client:

        async def ask(body: bytes) -> str:
            response = await client.post(endpoint.url, content=body)
            return str(response.json()["choices"][0]["message"]["content"])

        return await _gathered(ask, bodies, concurrency)


async def openai_client(endpoint: Endpoint, bodies: list[bytes], concurrency: int) -> list[str]:
    """`openai.AsyncOpenAI` with a semaphore."""
    import openai

    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="none", max_retries=0) as client:

        async def ask(body: bytes) -> str:
            completion = await client.chat.completions.create(**json.loads(body))
            return str(completion.choices[0].message.content)

        return await _gathered(ask, bodies, concurrency)


async def litellm_client(endpoint: Endpoint, bodies: list[bytes], concurrency: int) -> list[str]:
    """`litellm.acompletion` with a semaphore."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks a server on the internet for prices
    import litellm

    litellm.suppress_debug_info = True

    async def ask(body: bytes) -> str:
        request: dict[str, Any] = json.loads(body)
        model = f"hosted_vllm/{request.pop('model')}"
        reply = await litellm.acompletion(model, api_base=endpoint.base_url, api_key="none", **request)
        return str(reply.choices[0].message.content)

    return await _gathered(ask, bodies, concurrency)


async def _gathered(ask: Callable[[bytes], Awaitable[str]], bodies: list[bytes], concurrency: int) -> list[str]:
    permits = asyncio.Semaphore(concurrency)

    async def one(body: bytes) -> str:
        async with permits:
            return await ask(body)

    return await asyncio.gather(*map(one, bodies))


PEERS: dict[str, Peer] = {
    "bare aiohttp": bare_aiohttp,
    "openai": openai_client,
    "litellm": litellm_client,
    "gather over httpx": gathered_httpx,
}

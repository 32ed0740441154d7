"""The same bodies through other clients: what an engineer would use instead, and the bare loop below it all.

A peer is opened once and asked again and again, as a trainer would: what it keeps, such as its connections, stays warm.
Each keeps `concurrency` requests in flight, returns the texts in input order, and is as well set up as its own
documentation makes it. They are compared by client CPU in one run, so they all meet the same machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from rewardcore import Endpoint

#: (bodies, how many at once) → the texts.
Ask = Callable[[list[bytes], int], Awaitable[list[str]]]


@contextlib.asynccontextmanager
async def bare_aiohttp(endpoint: Endpoint) -> AsyncIterator[Ask]:
    """A tuned `aiohttp.ClientSession.post` loop that neither builds requests nor reads scores: the floor."""
    import aiohttp
    from yarl import URL

    url = URL(endpoint.url)
    async with aiohttp.ClientSession(
        headers=endpoint.request_headers(),
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:

        async def ask(bodies: list[bytes], concurrency: int) -> list[str]:
            replies: list[bytes] = [b""] * len(bodies)
            source = enumerate(bodies)

            async def work() -> None:
                for index, body in source:
                    async with session.post(url, data=body) as response:
                        replies[index] = await response.read()

            await asyncio.gather(*(work() for _ in range(concurrency)))
            return [json.loads(reply)["choices"][0]["message"]["content"] for reply in replies]

        yield ask


@contextlib.asynccontextmanager
async def gathered_httpx(endpoint: Endpoint) -> AsyncIterator[Ask]:
    """`asyncio.gather` with a semaphore over a plain httpx client, as most reward functions begin."""
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(headers=endpoint.request_headers(), limits=limits, timeout=None) as client:

        async def one(body: bytes) -> str:
            response = await client.post(endpoint.url, content=body)
            return str(response.json()["choices"][0]["message"]["content"])

        yield _gathered(one)


@contextlib.asynccontextmanager
async def openai_client(endpoint: Endpoint, over_aiohttp: bool = False) -> AsyncIterator[Ask]:
    """`openai.AsyncOpenAI` with a semaphore, over httpx as by default or over its own aiohttp client."""
    import openai

    http_client = openai.DefaultAioHttpClient() if over_aiohttp else None
    async with openai.AsyncOpenAI(
        base_url=endpoint.base_url, api_key="none", max_retries=0, http_client=http_client
    ) as client:

        async def one(body: bytes) -> str:
            completion = await client.chat.completions.create(**json.loads(body))
            return str(completion.choices[0].message.content)

        yield _gathered(one)


def openai_over_aiohttp(endpoint: Endpoint) -> AbstractAsyncContextManager[Ask]:
    return openai_client(endpoint, over_aiohttp=True)


@contextlib.asynccontextmanager
async def litellm_client(endpoint: Endpoint) -> AsyncIterator[Ask]:
    """`litellm.acompletion` with a semaphore; it keeps its client itself."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks a server on the internet for prices
    import litellm

    litellm.suppress_debug_info = True

    async def one(body: bytes) -> str:
        request: dict[str, Any] = json.loads(body)
        model = f"hosted_vllm/{request.pop('model')}"
        reply = await litellm.acompletion(model, api_base=endpoint.base_url, api_key="none", **request)
        return str(reply.choices[0].message.content)

    yield _gathered(one)


def _gathered(one: Callable[[bytes], Awaitable[str]]) -> Ask:
    async def ask(bodies: list[bytes], concurrency: int) -> list[str]:
        permits = asyncio.Semaphore(concurrency)

        async def permitted(body: bytes) -> str:
            async with permits:
                return await one(body)

        return await asyncio.gather(*map(permitted, bodies))

    return ask


class Peer(NamedTuple):
    open: Callable[[Endpoint], AbstractAsyncContextManager[Ask]]
    needs: tuple[str, ...] = ()  # packages of the extra `peers`


PEERS: dict[str, Peer] = {
    "bare aiohttp": Peer(bare_aiohttp),
    "openai": Peer(openai_client, ("openai",)),
    "openai over aiohttp": Peer(openai_over_aiohttp, ("openai", "httpx_aiohttp")),
    "litellm": Peer(litellm_client, ("litellm",)),
    "gather over httpx": Peer(gathered_httpx),
}

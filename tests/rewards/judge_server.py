"""A judge that says what each response asks it to: `judge:7`, `judge:true`, or `judge:nothing` for no verdict."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager

from rewardcore.rewards import judges
from tests.modes.hostile_server import Behaviour, Exchange, HostileServer, Script, completion

_ASKED = re.compile(rb"judge:(\w+)")


def obliging(together: int = 1) -> Behaviour:
    """Answers once this many are in flight at the same time."""
    arrived = asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        if exchange.script.in_flight >= together:
            arrived.set()
        await arrived.wait()
        word = _ASKED.findall(exchange.body)[-1].decode()
        tag = "score" if word.isdigit() else "answer"
        await exchange.answer(200, completion("No idea." if word == "nothing" else f"Well. <{tag}>{word}</{tag}>"))

    return behave


@contextmanager
def judge_server() -> Iterator[HostileServer]:
    """The server; and afterwards no judge is left open."""
    with HostileServer() as server:
        try:
            yield server
        finally:
            for judge in judges._judges.values():
                judge.close()


__all__ = ["HostileServer", "Script", "judge_server", "obliging"]

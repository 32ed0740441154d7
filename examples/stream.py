"""Verdicts as they arrive, from an iterable of any length, in bounded memory, inside a running loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import rewardcore as rc
from examples import a_judge_model


def samples() -> Iterator[rc.Sample]:
    for number in range(500):
        yield rc.Sample(f"What is {number} + {number}?", str(2 * number))


async def main() -> None:
    total = count = 0.0
    with a_judge_model() as endpoint:
        async with rc.open_judge("asyncio", endpoint, cache=True) as judge:
            async for _, verdict in judge.astream(samples()):
                if verdict.score is not None:
                    total, count = total + verdict.score, count + 1
        print(f"{count:.0f} scored, {total / count:.2f} on average; {judge.stats.cached} came from the cache")


if __name__ == "__main__":
    asyncio.run(main())

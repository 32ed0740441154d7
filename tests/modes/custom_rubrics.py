"""Rubrics that a spawned process can import."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import rewardcore as rc


class Plain:
    """The whole rubric a user must write."""

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        return [{"role": "user", "content": f"{sample.prompt} {sample.response}"}]

    def parse(self, text: str) -> float:
        return rc.rubrics.QUALITY.parse(text)


class SeesTheTruth(Plain):
    """Its request does not show the ground truth, its parse does."""

    def parse(self, text: str, sample: rc.Sample) -> float:  # type: ignore[override]
        if sample.ground_truth is None:
            raise rc.Unparsed("there is no ground truth")
        return float(sample.ground_truth in text)


class RaisesInMessages(Plain):
    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        if sample.response == "poison":
            raise KeyError("no such field")
        return super().messages(sample)


class RaisesInParse(Plain):
    def parse(self, text: str) -> float:
        if "poison" in text:
            raise ZeroDivisionError("division by zero")
        return super().parse(text)


class Awkward(rc.Unparsed):
    """An error that pickle can write and not read."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} {why}")


class RaisesAwkwardly(Plain):
    def parse(self, text: str) -> float:
        if "poison" in text:
            raise Awkward("poison", "in the text")
        return super().parse(text)


class DiesInParse(Plain):
    def parse(self, text: str) -> float:
        if "poison" in text:
            os._exit(9)
        return super().parse(text)


class Unpicklable(Plain):
    def __init__(self) -> None:
        self.parse_it = lambda text: 0.0


class RaisesPastException(Plain):
    """In `messages` for one sample and in `parse` for another, what `except Exception` does not catch."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        if sample.response == "poison":
            raise self.error("out of messages")
        return super().messages(sample)

    def parse(self, text: str) -> float:
        if "poison" in text:
            raise self.error("out of parse")
        return super().parse(text)


@functools.cache
def another_judge(base_url: str) -> rc.Judge:
    """Opened in a thread of which no judge waits for anything."""
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(rc.open_judge, "asyncio", rc.Endpoint(base_url, "judge"), cache=None).result()


#: How a rubric may ask another judge.
WAYS: dict[str, Callable[[str, list[rc.Sample]], object]] = {
    "open": lambda base_url, _: rc.open_judge("sync", rc.Endpoint(base_url, "judge")),
    "judge": lambda base_url, samples: another_judge(base_url).judge(samples),
    "submit": lambda base_url, samples: another_judge(base_url).submit(samples).result(timeout=60.0),
    "stream": lambda base_url, samples: list(another_judge(base_url).stream(samples)),
    "close": lambda base_url, _: another_judge(base_url).close(),
}


class AsksAnotherJudge(Plain):
    """For a response that names a way, and for a reply that begins with one."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        self._ask(str(sample.response))
        return super().messages(sample)

    def parse(self, text: str) -> float:
        self._ask(text.split()[0])
        return super().parse(text)

    def _ask(self, way: str) -> None:
        if way in WAYS:
            WAYS[way](self.base_url, [rc.Sample("p", "another")])

"""Rubrics that a spawned process can import."""

from __future__ import annotations

import os

import rewardcore as rc


class Plain:
    """The whole rubric a user must write."""

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        return [{"role": "user", "content": f"{sample.prompt} {sample.response}"}]

    def parse(self, text: str) -> float:
        return rc.rubrics.QUALITY.parse(text)


class Independent(Plain):
    independent = True


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

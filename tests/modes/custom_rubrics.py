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


class SeesTheTruth(Plain):
    """Its request does not show the ground truth, its parse does."""

    def parse(self, text: str, sample: rc.Sample) -> float:  # type: ignore[override]
        if sample.ground_truth is None:
            raise rc.Unparsed("there is no ground truth")
        return float(sample.ground_truth in text)


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


class AsksAnotherJudge(Plain):
    """A second opinion: each score is what another judge says about the reply."""

    def __init__(self, mode: str, base_url: str, marker: str) -> None:
        self.mode = mode
        self.endpoint = rc.Endpoint(base_url, "judge")
        self.marker = marker

    def parse(self, text: str) -> float:
        with rc.open_judge(self.mode, self.endpoint, cache=None, deadline=600.0) as judge:
            (verdict,) = judge.judge([rc.Sample(f"[[{self.marker}]]", text)])
        if verdict.score is None:
            raise rc.Unparsed(f"the second opinion: {verdict.error}")
        return verdict.score

"""Never run: a type checker reads it in `tox -e lint`. What must not pass is marked, and an unused mark is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_type

import rewardcore as rc

ENDPOINT = rc.Endpoint("http://127.0.0.1:8000/v1", "judge")


class Texts:
    def generate(self, conversations: Sequence[Sequence[object]]) -> list[str]:
        return ["<score>7</score>" for _ in conversations]


class OfTheText:
    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        return [{"role": "user", "content": sample.response}]

    def parse(self, text: str) -> float:
        return float(text)


class OfTheSample(OfTheText):
    def parse(self, text: str, sample: rc.Sample | None = None) -> float:
        return float(sample is not None and text == sample.ground_truth)


def opens(mode: str, options: dict[str, Any]) -> None:
    assert_type(rc.open_judge("asyncio", ENDPOINT, max_concurrent="auto", cache="judge.sqlite"), rc.Judge)
    assert_type(rc.open_judge("asyncio", ENDPOINT, transport="httpx", background="process"), rc.Judge)
    assert_type(rc.open_judge("process", ENDPOINT, workers=4, worker_setup=print, deadline=5), rc.Judge)
    assert_type(rc.open_judge("sync", ENDPOINT, rubric=OfTheText(), request_timeout=None), rc.Judge)
    assert_type(rc.open_judge("sync", ENDPOINT, rubric=OfTheSample()), rc.Judge)
    assert_type(rc.open_judge("self", Texts(), batch_size="auto"), rc.Judge)
    assert_type(rc.open_judge(mode, ENDPOINT, **options), rc.Judge)


def wrong() -> None:
    rc.open_judge("asyncio", ENDPOINT, max_concurrent="many")  # type: ignore[call-overload]
    rc.open_judge("asyncio", ENDPOINT, background="elsewhere")  # type: ignore[call-overload]
    rc.open_judge("process", ENDPOINT, workers=2.5)  # type: ignore[call-overload]
    rc.open_judge("sync", ENDPOINT, deadlin=3)  # type: ignore[call-overload]
    rc.open_judge("sync", ENDPOINT, cache=7)  # type: ignore[call-overload]
    rc.open_judge("self", Texts(), batch_size="many")  # type: ignore[call-overload]
    rc.open_judge("sync", "http://127.0.0.1:8000/v1")  # type: ignore[call-overload]
    rc.open_judge("sync", ENDPOINT, rubric="quality")  # type: ignore[call-overload]

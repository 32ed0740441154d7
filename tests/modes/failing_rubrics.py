"""Rubrics that fail or dawdle, and that a spawned process can import."""

from __future__ import annotations

import time

import rewardcore as rc
from rewardcore import failures
from tests.modes.custom_rubrics import Plain


class Raises(Plain):
    """A failure of the endpoint's kinds, out of its own `messages` or `parse`: for the poisoned sample alone."""

    def __init__(self, kind: str, where: str) -> None:
        self.kind, self.where = kind, where

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        if self.where == "messages" and sample.response == "poison":
            self._raise()
        return super().messages(sample)

    def parse(self, text: str) -> float:
        if self.where == "parse" and "poison" in text:
            self._raise()
        return super().parse(text)

    def _raise(self) -> None:
        raise getattr(failures, self.kind)("out of the rubric")


class Spins(Plain):
    """Uses 80 ms of its thread's time for each sample."""

    def __init__(self, where: str) -> None:
        self.where = where

    def messages(self, sample: rc.Sample) -> list[dict[str, object]]:
        self._spin("messages")
        return super().messages(sample)

    def parse(self, text: str) -> float:
        self._spin("parse")
        return super().parse(text)

    def _spin(self, where: str) -> None:
        end = time.thread_time() + 0.08
        while self.where == where and time.thread_time() < end:
            pass

"""Whoever waits by the machine's clock looks up now and then: a signal just before a sleep would not end it."""

import threading
import time

import pytest

from rewardcore.clock import LOOK_UP_SECONDS, SYSTEM_CLOCK


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each of a thread's sleeps may be; the fourth finds the event set."""
    found: list[float] = []

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        assert timeout is not None, "it sleeps until the event is set, whatever else happens"
        found.append(timeout)
        return len(found) > 3

    monkeypatch.setattr(threading.Event, "wait", wait)
    return found


@pytest.mark.parametrize("timeout", [None, 3600.0])
def test_whoever_waits_long_looks_up(waits: list[float], timeout: float | None) -> None:
    assert SYSTEM_CLOCK.event().wait(timeout)
    assert waits == [LOOK_UP_SECONDS] * 4


def test_nobody_waits_longer_than_he_said(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([100.0, 100.0, 100.5, 100.5, 101.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(readings))
    assert not SYSTEM_CLOCK.event().wait(0.75)
    assert waits == [0.5, 0.25]


def test_an_event_is_as_any_other() -> None:
    event = SYSTEM_CLOCK.event()
    assert not event.wait(0)
    threading.Timer(0.01, event.set).start()
    assert event.wait()
    assert event.wait(0)
    event.clear()
    assert not event.wait(0.001)

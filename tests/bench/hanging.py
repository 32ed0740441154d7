"""A test that hangs, for the test of the guard: no pattern collects it."""

import threading


def test_that_hangs() -> None:
    threading.Event().wait()

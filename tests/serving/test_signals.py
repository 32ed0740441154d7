import os
import signal
import threading

import pytest

from rewardcore.serving.signals import Terminated, terminating_on_sigterm


def test_a_polite_kill_is_an_exception_within_and_the_default_after() -> None:
    with pytest.raises(Terminated), terminating_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_who_handles_sigterm_already_goes_on_to() -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("mine"))
    try:
        with terminating_on_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["mine"]


def test_another_thread_changes_nothing() -> None:
    seen = []

    def look() -> None:
        with terminating_on_sigterm():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]

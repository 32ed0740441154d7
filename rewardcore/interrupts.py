"""Ctrl-C and SIGTERM of the command `rewardcore`, from its first import to its last line.

The first signal is raised while a command runs, so that `with` and `finally` see it. Before and after, when there is
nothing to undo, it ends the process at once, with one line and the signal's exit code. A signal that is ignored (as
under `nohup`, or in a shell's background) stays ignored. The library itself never listens: only the command does, and
imports this file before all others. So it imports only what every Python has at hand when it has started: `signal`
itself takes half as long to import as an interpreter to start, and until it is there Ctrl-C is a traceback.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what the module `signal` is made of
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

ENDS: dict[int, tuple[str, int]] = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}
#: `timeout` and some schedulers send a signal to a process and to its group: both are one.
_SAME_SECONDS = 1.0
#: The stages of a command, and what is told of one that ends at once in it.
_BEFORE, _WITHIN, _AFTER = (
    "before it had begun; run the same again",
    "at once; run the same again to go on",
    "after its work was over",
)


class Terminated(KeyboardInterrupt):
    """SIGTERM came. A KeyboardInterrupt, since whatever ends well on Ctrl-C is to end well on this."""


class Interrupts:
    """As a context manager it raises the first signal that comes within; `came` is its number, and stays.

    A second Ctrl-C, and a second SIGTERM if it is not the first one's double, end the process at once.
    """

    def __init__(self) -> None:
        self.came: int | None = None
        self._came_at = 0.0
        self._stage = _BEFORE

    def listen(self) -> None:
        """From now on, and in the main thread, where alone signals are heard."""
        try:
            for number in ENDS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, self._heard)
        except ValueError:  # another thread
            return
        sys.unraisablehook = self._swallowed

    def __enter__(self) -> None:
        self._stage = _WITHIN

    def __exit__(self, *exception: object) -> None:
        self._stage = _AFTER

    def _heard(self, number: int, frame: FrameType | None) -> None:
        is_first = self.came is None
        if is_first and self._stage is _WITHIN:
            self.came, self._came_at = number, time.monotonic()
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if is_first or number == signal.SIGINT or time.monotonic() - self._came_at > _SAME_SECONDS:
            word, code = ENDS[number]
            try:
                os.write(2, f"rewardcore: {word} {self._stage}\n".encode())
            finally:
                os._exit(code)

    def _swallowed(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Nothing leaves a finalizer, and every import ends with one: a signal that was raised there comes again."""
        if self.came is None or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        import threading

        number, self.came = self.came, None
        main = threading.main_thread().ident
        assert main is not None
        threading.Thread(target=signal.pthread_kill, args=(main, number), daemon=True).start()


COMMAND = Interrupts()


def is_command() -> bool:
    """Whether this process is `rewardcore …` or `python -m rewardcore …`, and no child of it: spawned ones have its
    `sys.argv`, but another command line."""
    name, words = (getattr(sys, "argv", None) or [""])[0], sys.orig_argv
    if name == "-m":  # as long as the module is being looked for
        return any(words[place : place + 2] == ["-m", "rewardcore"] for place in range(len(words)))
    return os.path.basename(name) == "rewardcore" and name in words

"""A program: runs a command, and ends it with all its descendants when whoever asked for it says so, or dies.

stdin is the lifeline: `t`, or its end, is SIGTERM now and SIGKILL after the grace; `k` is SIGKILL now. stdout says the
command's pid and, once it has ended, its exit code. stderr is the log, the command's too. A pipe, and not the kernel's
signal at a parent's death: that one comes when the *thread* that started the child ends. It imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import time

import psutil

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_SECONDS = 0.2


def main(grace: float, command: list[str]) -> None:
    control = getattr(ctypes.CDLL(None), "prctl", lambda *_: None)  # Linux alone has it
    # Orphans among the descendants become our children: we find them, and no zombie stays where PID 1 reaps nobody.
    control(_PR_SET_CHILD_SUBREAPER, 1)
    # A thread that blocks signals passes that on to what it starts: to us, and by us to the command.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Under nohup a hang-up is ignored: by whoever started us, by us, and by the command, which inherits that.
    hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    woken = _wake_on(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, *hang_up)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        process_group=0,
        # Should this keeper be killed alone. It has no threads, so that the function is safe here.
        preexec_fn=lambda: control(_PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    _tell("pid", child.pid)
    is_ending, kill_at, lifeline = False, math.inf, [sys.stdin.fileno()]
    while True:
        ready, _, _ = select.select([*lifeline, woken], [], [], _LOOK_SECONDS if is_ending else None)
        asked = b""
        if woken in ready:
            asked = b"t" * (not {signal.SIGTERM, signal.SIGHUP}.isdisjoint(os.read(woken, 512)))
        if lifeline and lifeline[0] in ready:
            said = os.read(lifeline[0], 64)
            asked += said or b"t"
            lifeline = lifeline if said else []
        if not _reap(child):
            return
        if not is_ending and (asked or child.returncode is not None):
            is_ending, kill_at = True, time.monotonic() + grace
            _signal_all(signal.SIGTERM)
        if b"k" in asked:
            kill_at = -math.inf
        if time.monotonic() >= kill_at:
            _signal_all(signal.SIGKILL)


def _wake_on(*numbers: signal.Signals) -> int:
    """A descriptor that can be read when one of these signals has come: its bytes are their numbers."""
    there, here = os.pipe()
    os.set_blocking(here, False)
    signal.set_wakeup_fd(here, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # a handler, and not SIG_IGN, which the command would inherit
    return there


def _tell(*words: object) -> None:
    with contextlib.suppress(OSError):  # nobody is there any more
        os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def _reap(child: subprocess.Popen[bytes]) -> bool:
    """Whoever of our children has ended, orphans that became ours too; whether anyone is left.

    That is the kernel's to say: a list of processes, read one by one, misses whoever ends or is orphaned meanwhile.
    """
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child.pid:
                child.returncode = os.waitstatus_to_exitcode(found[1])
                _tell("exit", child.returncode)
    except ChildProcessError:
        return False
    return True


def _signal_all(number: signal.Signals) -> None:
    """To the command and all its descendants, those that have left its group or its session too."""
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            each.send_signal(number)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])

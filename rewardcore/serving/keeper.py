"""A program: runs a command, and ends it with all its descendants when whoever asked for it says so, or dies.

stdin is the lifeline: `t`, or its end, is SIGTERM now and SIGKILL after the grace; `k` is SIGKILL now. stdout says the
command's pid and, once it has ended, its exit code. stderr is the log, the command's too. A pipe, and not the kernel's
signal at a parent's death: that one comes when the *thread* that started the child ends. Standard library alone.
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

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_SECONDS = 0.2
_IS_LINUX = sys.platform == "linux"
_HAS_PROC = os.path.exists("/proc/self/stat")


def main(grace: float, command: list[str]) -> None:
    control = ctypes.CDLL(None).prctl if _IS_LINUX else lambda *_: None
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
            _signal(child.pid, signal.SIGTERM)
        if b"k" in asked:
            kill_at = -math.inf
        if time.monotonic() >= kill_at:
            _signal(child.pid, signal.SIGKILL)


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
        return not _IS_LINUX and _exists(child.pid)
    return True


def _signal(group: int, number: signal.Signals) -> None:
    """To the command's group at once, and to those of its descendants that have left the group."""
    family = _descendants()
    if group in family.values() or not _HAS_PROC:  # else its number may be somebody else's by now
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid, its_group in family.items():
        if its_group != group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _exists(group: int) -> bool:
    """Where orphans do not become ours, those of the command's group are all that can be known."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _descendants() -> dict[int, int]:
    """The process groups of all that live, by pid. Without /proc, none is known beside the group."""
    family: dict[int, list[tuple[int, int, bool]]] = {}
    for name in os.listdir("/proc") if _HAS_PROC else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:  # it has ended meanwhile
                continue
            family.setdefault(int(parent), []).append((int(name), int(group), state not in (b"Z", b"X")))
    found, parents = {}, [os.getpid()]
    while parents:
        for pid, its_group, is_alive in family.get(parents.pop(), ()):
            parents.append(pid)
            if is_alive:
                found[pid] = its_group
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])

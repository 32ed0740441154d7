"""However the program that uses a server ends, none of the server's processes is left."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.modes import scripts
from tests.serving.conftest import SECONDS, Stand, until

IN_USE = """
import threading
from rewardcore.serving.signals import terminating_on_sigterm
with terminating_on_sigterm(), server:
    print("up", flush=True)
    threading.Event().wait()
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_it_starts_ends_it(stand: Stand, number: signal.Signals) -> None:
    with scripts.started(stand.script(IN_USE, "--silent", "--children")) as process:
        stand.pids()
        process.send_signal(number)
        process.wait(SECONDS)
        assert stand.all_are_gone()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_it_is_used_ends_it(stand: Stand, number: signal.Signals) -> None:
    with scripts.started(stand.script(IN_USE, "--stubborn", "--children")) as process:
        wait_until_up(process)
        process.send_signal(number)
        process.wait(SECONDS)
        assert stand.all_are_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_the_program_finds_the_server_gone(stand: Stand, number: signal.Signals) -> None:
    """Whoever starts the next server right after it must find the port and the memory free."""
    with scripts.started(stand.script(IN_USE, "--children")) as process:
        wait_until_up(process)
        process.send_signal(number)
        process.wait(SECONDS)
        assert stand.all_are_gone_now()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_waits_for_no_grace(stand: Stand, number: signal.Signals) -> None:
    patient = "from rewardcore.serving import vllm_server\nvllm_server._GRACE_SECONDS = 3600.0\n"
    with scripts.started(stand.script(patient + IN_USE, "--stubborn", "--children")) as process:
        wait_until_up(process)
        process.send_signal(number)
        assert until(lambda: "SIGTERM? no" in (stand.logs / "model-7b_vllm.log").read_text())
        process.send_signal(number)
        process.wait(SECONDS)
        assert stand.all_are_gone_now()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_is_ended_without_the_whole_grace(stand: Stand, number: signal.Signals) -> None:
    """Nothing is to be finished yet, and vLLM does not listen while it waits for its engine."""
    patient = "from rewardcore.serving import vllm_server\nvllm_server._GRACE_SECONDS = 3600.0\n"
    with scripts.started(stand.script(patient + IN_USE, "--silent", "--stubborn")) as process:
        stand.pids()
        process.send_signal(number)
        process.wait(SECONDS)
        assert stand.all_are_gone_now()


def test_it_is_killed_with_its_children_long_after_its_owner_was(stand: Stand) -> None:
    """The keeper goes on alone: polite first, and after the grace no more."""
    with scripts.started(stand.script(IN_USE, "--stubborn")) as process:
        wait_until_up(process)
        process.kill()
        assert until(lambda: "SIGTERM? no" in (stand.logs / "model-7b_vllm.log").read_text())
        assert stand.all_are_gone()


@pytest.mark.parametrize(
    "end",
    [
        "server.start()",
        "server.start(); import sys; sys.exit(3)",
        "server.start(); raise ValueError('mine')",
        "with server: raise ValueError('mine')",
        "import threading; threading.Thread(target=server.start).start()",
    ],
)
def test_an_exit_stops_it_and_waits(stand: Stand, end: str) -> None:
    with scripts.started(stand.script(end, "--children")) as process:
        scripts.ended(process)
        assert stand.all_are_gone_now()


def test_signals_that_are_blocked_here_reach_it(stand: Stand) -> None:
    """Threads of other libraries block them, and what is blocked is inherited."""
    source = """
import signal
from rewardcore.serving import vllm_server
vllm_server._GRACE_SECONDS = 3600.0
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGINT})
with server:
    pass
"""
    with scripts.started(stand.script(source)) as process:
        assert scripts.ended(process) == ("", "", 0)
        assert stand.all_are_gone_now()


@pytest.mark.parametrize("end", ["os._exit(0)", "os.abort()"])
def test_an_exit_without_any_manners_stops_it_too(stand: Stand, end: str) -> None:
    with scripts.started(stand.script(f"import os; server.start(); {end}", "--children")) as process:
        scripts.ended(process)
        assert stand.all_are_gone()


def test_a_forked_child_that_lives_on_does_not_keep_it_alive(stand: Stand) -> None:
    source = """
import os, time
server.start()
if os.fork() == 0:
    print("up", flush=True)
    while True:
        time.sleep(1)
os.wait()
"""
    with scripts.started(stand.script(source)) as process:
        wait_until_up(process)
        process.kill()
        assert stand.all_are_gone()


def test_a_forked_child_that_ends_does_not_end_it(stand: Stand) -> None:
    source = """
import os, sys
with server:
    if os.fork() == 0:
        sys.exit(0)  # through the end of the with statement, and through what is done at exit
    os.wait()
    print(server.alive)
"""
    with scripts.started(stand.script(source)) as process:
        assert scripts.ended(process)[0] == "True\n"
        assert stand.all_are_gone_now()


def test_a_signal_of_its_own_ends_the_server_as_politely(stand: Stand) -> None:
    """Who kills the keeper, by hand or at shutdown, means the server."""
    source = "import time\nserver.start()\nprint('up', flush=True)\nwhile server.alive: time.sleep(0.02)\n"
    with scripts.started(stand.script(source, "--children")) as process:
        wait_until_up(process)
        keeper = os.getsid(stand.pids()[0])
        os.kill(keeper, signal.SIGTERM)
        assert stand.all_are_gone()
        assert scripts.ended(process)[2] == 0


ORPHANS_OF_A_MOMENT = """
import ctypes, os, subprocess, sys
from rewardcore.serving import keeper
ctypes.CDLL(None).prctl(keeper._PR_SET_CHILD_SUBREAPER, 1)
for _ in range(5):
    command = ["sh", "-c", "for orphan in 1 2 3 4 5 6 7 8; do sleep 0.05 & done"]
    kept = subprocess.Popen(
        [sys.executable, "-P", keeper.__file__, "60", *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    kept.wait()
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        print(file.read().split())
"""


def test_nobody_who_ends_in_the_last_moment_is_left_unreaped() -> None:
    """Where PID 1 reaps nobody, as in many containers, such zombies would stay for ever."""
    assert scripts.run_inline(ORPHANS_OF_A_MOMENT)[0].splitlines() == ["[]"] * 5

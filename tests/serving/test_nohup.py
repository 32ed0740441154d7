"""Under nohup a hang-up ends nobody, and without it everybody: whatever the tests themselves are run under."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.modes import scripts
from tests.serving.conftest import Stand
from tests.serving.test_histories import IN_USE, wait_until_up

NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"


def ignores_hang_up(pid: int) -> bool:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    return bool(int(line.split()[1], 16) & 1 << signal.SIGHUP - 1)


def test_under_nohup_a_hang_up_ends_neither_the_program_nor_its_server(stand: Stand) -> None:
    with scripts.started(NOHUP + stand.script(IN_USE)) as process:
        wait_until_up(process)
        (server,) = stand.pids()
        everybody = [process.pid, os.getsid(server), server]  # the keeper leads the server's session
        assert [ignores_hang_up(pid) for pid in everybody] == [True] * 3
        for pid in everybody:
            os.kill(pid, signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        scripts.ended(process)
        assert stand.all_are_gone_now()


@pytest.mark.parametrize("disposition", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_script_hears_a_hang_up_whatever_these_tests_are_run_under(disposition: signal.Handlers) -> None:
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        told, _, _ = scripts.run_inline("import signal; print(signal.getsignal(signal.SIGHUP).name)")
        assert (told, signal.getsignal(signal.SIGHUP)) == ("SIG_DFL\n", disposition)
    finally:
        signal.signal(signal.SIGHUP, before)

"""Judging where names resolve as a test wants: in a Python of its own, since the patch must come before the loop does.

uvloop looks names up where no patch reaches, and a shared loop may be one already; a child of the script's own would
know nothing of the patch, so the modes that judge in a child process are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.modes.scripts import run_script

IN_PROCESS_MODES = ["sync", "asyncio-aiohttp", "asyncio-httpx"]

SCRIPT = """
import json, socket, sys, threading

sys.modules["uvloop"] = None
names, addresses, mode, options, base_url, marker, deadline = json.loads(sys.argv[1])
asked, answered, over = threading.Event(), threading.Event(), threading.Event()
look_up = socket.getaddrinfo

def getaddrinfo(host, port, *arguments, **options):
    if (host.decode() if isinstance(host, bytes) else host) not in names:
        return look_up(host, port, *arguments, **options)
    asked.set()
    if not addresses:
        over.wait(60)  # the resolver hangs; no test hangs with it
        answered.set()
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answered")
    stream = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    return [(*stream, (address, int(port))) for address in addresses]

socket.getaddrinfo = getaddrinfo

import rewardcore as rc

judge = rc.open_judge(mode, rc.Endpoint(base_url, "judge"), cache=None, deadline=deadline, **options)
verdicts = judge.judge([rc.Sample(f"[[{marker}]]", str(number)) for number in range(2)])
judge.close()
has_waited = answered.is_set()
over.set()
statuses, errors = [verdict.status for verdict in verdicts], [verdict.error for verdict in verdicts]
print(json.dumps([statuses, errors, asked.is_set(), has_waited]))
"""


@dataclass(frozen=True)
class Run:
    """What two samples met, whether any of the names was looked up, and whether the resolver was `waited_for`."""

    statuses: list[str]
    errors: list[str | None]
    asked: bool
    waited_for: bool


def judge_where(
    names: list[str],
    addresses: list[str],
    mode: tuple[str, dict[str, Any]],
    base_url: str,
    marker: str = "nobody",
    deadline: float = 30.0,
) -> Run:
    """Judge two samples where the names stand for the addresses; for none, looking them up takes a minute."""
    output, errors, code = run_script(SCRIPT, json.dumps([names, addresses, *mode, base_url, marker, deadline]))
    assert code == 0, errors
    assert all(line.startswith("rewardcore: ") for line in errors.splitlines()), errors
    return Run(*json.loads(output))

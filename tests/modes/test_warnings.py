"""What a program without any set-up shows on stderr, and one with: each line once, in every mode, and never a key."""

from __future__ import annotations

import re

import pytest

from tests.modes.conftest import MODES
from tests.modes.hostile_server import HostileServer, answers, ok
from tests.modes.scripts import run_script
from tests.modes.test_hostile import free_port

SCRIPT = """
import logging, os, sys
import rewardcore as rc

{set_up}

if __name__ == "__main__":
    os.environ["OPENAI_API_KEY"] = "sk-0123456789abcdef"
    mode, options, base_url, prompts = {arguments}
    with rc.open_judge(mode, rc.Endpoint(base_url, "judge"), cache=None, startup_timeout=0.5, **options) as judge:
        judge.judge([rc.Sample(prompt, str(number)) for number, prompt in enumerate(prompts)])
"""
SET_UPS = {
    "none": ("", "rewardcore: "),
    "of its own, at the top": ("logging.basicConfig(format='LOG %(message)s')", "LOG "),
}


def shown(mode: str, base_url: str, prompts: list[str], set_up: str = "") -> list[str]:
    name, options = MODES[mode]
    source = SCRIPT.format(set_up=set_up, arguments=repr((name, options, base_url, prompts)))
    out, errors, code = run_script(source)
    assert (code, out) == (0, ""), errors
    assert "sk-0123" not in errors
    return errors.splitlines()


@pytest.mark.parametrize("set_up", SET_UPS)
def test_an_endpoint_that_is_not_there_is_told_at_once_and_ends_the_call(mode: str, set_up: str) -> None:
    port = free_port()
    first, *rest = shown(mode, f"http://127.0.0.1:{port}/v1", ["p"] * 20, SET_UPS[set_up][0])
    prefix = SET_UPS[set_up][1]
    assert first.startswith(f"{prefix}ConnectionFailed: no connection to 127.0.0.1:{port}")
    assert first.endswith("; it has never answered, and is asked for 0.5 s (startup_timeout)")
    *cuts, ended, lost = rest
    assert len(cuts) <= 1
    assert ended.startswith(f"{prefix}no connection to 127.0.0.1:{port}")
    assert ended.endswith("the rest of this run is not sent")
    assert re.match(rf"{prefix}20 of 20 not judged: (\d+ \w+, )*\d+ NeverAnswered", lost)


def test_what_a_call_lost_is_one_line(mode: str, server: HostileServer) -> None:
    fine, bad = server.script(ok), server.script(answers(400))
    prompts = [f"[[{script.marker}]]" for script in (fine, fine, fine, bad, fine)]
    (line,) = shown(mode, server.base_url, prompts)
    assert line.startswith("rewardcore: 1 of 5 not judged: 1 Rejected (127.0.0.1:")


def test_a_call_that_lost_nothing_says_nothing(mode: str, server: HostileServer) -> None:
    assert shown(mode, server.base_url, [f"[[{server.script(ok).marker}]]"] * 3) == []


def test_the_first_retry_is_told_with_its_host(mode: str, server: HostileServer) -> None:
    (line,) = shown(mode, server.base_url, [f"[[{server.script(answers(503), ok).marker}]]"])
    assert line.startswith(f"rewardcore: Overloaded: 127.0.0.1:{server.port} answered 503")
    assert "; asking again, " in line

"""Puts fake_vllm.py in vLLM's place, in this process and in scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rewardcore.serving import launch, vllm_server

PROGRAM = str(Path(__file__).with_name("fake_vllm.py"))
DEAF = "deaf child of fake_vllm"
GRACE_SECONDS = 0.5
SET_UP = """
import rewardcore
from tests.serving import fake
fake.put_in_place()
"""
_real_command = launch.command


def command(*arguments: object) -> list[str]:
    python, _, _, *rest = _real_command(*arguments)  # python -m vllm …
    return [python, PROGRAM, *rest]


def put_in_place(change: Callable[[object, str, object], object] = setattr) -> None:
    change(launch, "command", command)
    change(launch, "check_vllm", lambda: None)
    change(vllm_server, "_GRACE_SECONDS", GRACE_SECONDS)
    assert sys.executable

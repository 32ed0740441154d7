"""Promises of `rewardcore simulate`: a judge to try things on, that says what to try, and what it served."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import httpx
import orjson
import pytest

from rewardcore.testing import Profile, SimulatedServer
from rewardcore.testing.latency import flag
from rewardcore.testing.profiles import PROFILES
from tests import commands

ROOT = Path(__file__).resolve().parents[2]
NET = 60.0
BODY = orjson.dumps({"model": "judge", "messages": [{"role": "user", "content": "How good is it?"}]})


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rewardcore", "simulate", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.rewardcore("simulate", *arguments)


@contextlib.contextmanager
def simulated(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command on a free port, once it listens, and its first line."""
    process = subprocess.Popen(
        command("--port", "0", *arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it still prints; `communicate` would pass over what came along with the first line."""
    assert process.stdout is not None
    assert process.stderr is not None
    process.wait(timeout=NET)
    return process.stdout.read(), process.stderr.read()


@pytest.mark.parametrize("stopper", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_what_to_try_and_on_ctrl_c_what_it_served(stopper: signal.Signals) -> None:
    with simulated("--profile", "instant", "--rate-limit", "0.001") as (process, first):
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/v1", first)
        statuses = [httpx.post(f"{url}/chat/completions", content=BODY, trust_env=False).status_code for _ in range(3)]
        process.send_signal(stopper)
        rest, errors = rest_of(process)
    assert statuses == [200, 429, 429]
    tries = rest.splitlines()
    assert f"rewardcore check {url} --model judge" in tries[0]
    assert f"--base-url {url} --model judge" in tries[1]
    assert re.fullmatch(
        r"served 3 requests in \d+ s over 3 connections: 1 × 200, 2 × 429; at most 1 at once", tries[-1]
    )
    assert (process.returncode, errors) == (0, "")


def test_with_json_the_first_line_says_where_and_the_last_what_it_served() -> None:
    with simulated("--profile", "instant", "--json", "--model", "m-1") as (process, first):
        url = json.loads(first)["base_url"]
        assert httpx.get(f"{url}/models", trust_env=False).json()["data"][0]["id"] == "m-1"
        process.send_signal(signal.SIGINT)
        rest, errors = rest_of(process)
    served = json.loads(rest.splitlines()[-1])
    assert (served["base_url"], served["requests"], served["statuses"]) == (url, 0, {})
    assert f"rewardcore check {url} --model m-1" in errors


def test_quiet_prints_nothing_and_ends_as_well() -> None:
    with simulated("--quiet", "--json") as (process, _):  # --json, to know when it listens
        process.send_signal(signal.SIGINT)
        _, errors = rest_of(process)
    assert (process.returncode, errors) == (0, "")


def test_profiles_are_listed_with_a_line_each() -> None:
    done = run("--profiles")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(PROFILES)
    assert json.loads(run("--profiles", "--json").stdout).keys() == PROFILES.keys()


def test_every_field_of_a_profile_is_a_flag() -> None:
    done = run("--help")
    assert {flag(field.name) for field in fields(Profile)} <= set(re.findall(r"--[a-z-]+", done.stdout))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--latency", "-1"], "--latency must be a finite number of at least 0, not -1.0"),
        (["--profile", "fast"], "profile 'fast' is none of instant, steady"),
        (["--port", "65536"], "--port must be from 0, which takes any free one, to 65535, not 65536"),
        (["--tokens", "many"], "--tokens"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_sentence(judge_server: SimulatedServer) -> None:
    done = run("--port", str(judge_server.port))
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"port {judge_server.port} cannot be used (Address already in use): choose another" in done.stderr
    assert done.stderr.count("\n") == 1

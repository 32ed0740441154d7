"""Servers of our own, with a small program in vLLM's place: several checkpoints, deaths, and what is left of them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rejection.conftest import COMMAND, Command
from tests.serving import fake
from tests.serving.conftest import Stand, until

FAKED = f"{fake.SET_UP}\n{COMMAND}"


class Bench:
    """Makes models and runs the command on servers that are started for them."""

    def __init__(self, directory: Path, command: Command) -> None:
        self.stand = Stand(directory)
        self.command = command
        command.rows(8)

    def model(self, name: str) -> Path:
        path = self.command.directory / name
        path.mkdir()
        (path / "config.json").write_text("{}")
        return path

    def begin(self, *arguments: object, behaviour: tuple[object, ...] = ()) -> subprocess.Popen[str]:
        to_vllm = [f"--vllm-arg={argument}" for argument in self.stand.arguments(*map(str, behaviour))]
        flags = ["--data", "rows.jsonl", "--num-rollout", 2, "--model-port", 0, *arguments, *to_vllm]
        return subprocess.Popen(
            self.command.arguments(*flags, code=FAKED),
            cwd=self.command.directory,
            env=self.command.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, behaviour: tuple[object, ...] = ()) -> tuple[int, str, str]:
        process = self.begin(*arguments, behaviour=behaviour)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err


@pytest.fixture
def bench(tmp_path: Path, command: Command) -> Iterator[Bench]:
    bench = Bench(tmp_path, command)
    yield bench
    bench.stand.clear()


def test_a_server_is_started_asked_and_stopped(bench: Bench) -> None:
    code, out, err = bench.run("--model-path", bench.model("step-100"), "--model-name", "step-100")
    assert code == 0, err
    assert len(bench.command.results("step-100")) == 8
    assert bench.stand.all_are_gone_now()
    assert (bench.command.directory / "logs" / "step-100_vllm.log").exists()
    assert "step-100" in out


def test_nobody_is_started_where_everything_is_done(bench: Bench) -> None:
    flags = ["--model-path", bench.model("step-100"), "--model-name", "step-100"]
    assert bench.run(*flags)[0] == 0
    code, _, err = bench.run(*flags, behaviour=("--die", 3))
    assert (code, err) == (0, "")


@pytest.mark.parametrize("behaviour", [(), ("--stubborn", "--children")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_no_process_and_goes_on_later(
    bench: Bench, behaviour: tuple[str, ...], number: signal.Signals
) -> None:
    flags = ["--model-path", bench.model("step-100"), "--model-name", "step-100", "--concurrency", 1]
    process = bench.begin(*flags, behaviour=("--reply-seconds", 0.1, *behaviour))
    kept = bench.command.output / "step-100" / "results.jsonl"
    assert until(lambda: kept.exists() and kept.read_bytes().count(b"\n") >= 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert "run the same command again to go on" in err.splitlines()[-1]
    assert bench.stand.all_are_gone_now()
    code, out, err = bench.run(*flags)
    assert code == 0, err
    assert "samples were done before, and are kept" in out
    assert [row["index"] for row in bench.command.results("step-100")] == list(range(8))


def test_a_server_that_dies_in_mid_run_ends_it_with_the_end_of_its_log(bench: Bench) -> None:
    bench.command.rows(400)
    flags = ["--model-path", bench.model("step-100"), "--model-name", "step-100", "--concurrency", 1]
    code, _, err = bench.run(*flags, behaviour=("--dies-at", 50))
    assert code == 1
    said = err[err.index("rewardcore: vLLM died (exit code 7): RuntimeError: CUDA error") :]
    assert "the end of its log:" in said
    assert "not judged" not in said, "the cause comes last, where people look"
    assert bench.stand.all_are_gone()
    kept = bench.command.kept("step-100")
    assert 20 <= len(kept) < 25
    assert all(row["num_valid_rollouts"] == 2 for row in kept), "a death is nothing that a sample did"
    code, _, err = bench.run(*flags)
    assert code == 0, err
    assert len(bench.command.results("step-100")) == 400


def test_several_checkpoints_come_one_after_the_other_and_are_compared(bench: Bench) -> None:
    flags: list[object] = []
    for name in ("step-100", "step-200"):
        flags += ["--model-path", bench.model(name), "--model-name", name]
    code, out, err = bench.run(*flags)
    assert code == 0, err
    found = json.loads((bench.command.output / "comparison.json").read_bytes())
    assert [(each["model_name"], each["valid"], each["error"]) for each in found] == [
        ("step-100", 8, None),
        ("step-200", 8, None),
    ]
    assert (bench.command.output / "comparison.png").read_bytes().startswith(b"\x89PNG")
    lines = (bench.command.output / "comparison.md").read_text().splitlines()
    assert lines[0].startswith("| checkpoint | samples | valid | failed | mean | median | std | < 0.1 |")
    assert lines[3].startswith("| step-200 | 8 | 100.0% | 0 | 1.1250 |")
    shown = [line for line in out.splitlines() if line.startswith(("checkpoint ", "step-"))][-3:]
    assert shown[0].split()[:4] == ["checkpoint", "samples", "valid", "failed"]
    assert [line.split()[0] for line in shown[1:]] == ["step-100", "step-200"]


def test_a_checkpoint_that_cannot_be_served_costs_the_others_nothing(bench: Bench) -> None:
    """vLLM's place is taken by a program that dies for one of them: its name says so."""
    flags: list[object] = []
    for name in ("sick", "healthy"):
        flags += ["--model-path", bench.model(name), "--model-name", name]
    code, out, err = bench.run(*flags, behaviour=("--dies-for", "sick"))
    assert code == 1
    assert "sick was not sampled: vLLM ended before it was ready (exit code 3)" in err
    assert len(bench.command.results("healthy")) == 8
    assert "not sampled" in next(line for line in out.splitlines() if line.startswith("sick "))
    found = json.loads((bench.command.output / "comparison.json").read_bytes())
    assert ("vLLM ended before it was ready" in found[0]["error"], found[1]["error"]) == (True, None)


def test_a_port_in_use_is_named_and_nobody_is_killed(bench: Bench) -> None:
    code, _, err = bench.run(
        "--model-path", bench.model("step-100"), "--model-name", "step-100", "--model-port", bench.command.server.port
    )
    assert code == 2
    assert f"port {bench.command.server.port} is in use by process {bench.command.server.process_id}" in err
    assert bench.command.server.stats().requests == 0

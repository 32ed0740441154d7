"""The command line: what it prints, and what it says about a mistake."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from rewardcore import _GENERATORS, Endpoint, Sample, SqliteCache, Verdict, __version__, rubrics
from rewardcore.cli import ending
from rewardcore.failures import CacheError, ConfigurationError, Failure, NotJudged, ServerFailed
from rewardcore.http.request import RequestBuilder
from rewardcore.reply import Reply
from rewardcore.serving.signals import Terminated
from tests.commands import rewardcore


def noted(error):
    error.add_note("run it again to go on")
    return error


@pytest.fixture
def cached(tmp_path):
    """A cache with two replies, and the request of the first."""
    builder = RequestBuilder(Endpoint("http://judge.test/v1", model="judge"), rubrics.QUALITY)
    requests = [builder.build(Sample("What is it?", response)) for response in ("A tree.", "A bush.")]
    cache = SqliteCache(tmp_path / "judge.sqlite")
    for request in requests:
        cache.put(request.key, Reply("Fine. <score>7</score>"), builder.material(request))
    cache.close()
    return cache.path, requests[0]


def test_explain_prints_what_went_into_a_key(cached):
    path, request = cached
    done = rewardcore("cache", "explain", path, request.key.hex()[:10])
    assert (done.returncode, done.stderr) == (0, "")
    shown, _, rest = done.stdout.partition("\n\nkey = ")
    material = json.loads(shown)
    assert material["base_url"] == "http://judge.test/v1"
    assert material["request"]["model"] == "judge"
    assert "A tree." in material["request"]["messages"][0]["content"]
    canonical = json.dumps(material, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(canonical.encode()).hexdigest() == request.key.hex()
    assert request.key.hex() in rest
    assert "DOES NOT MATCH" not in rest
    assert "Fine. <score>7</score>" in rest


def test_explain_without_a_key_lists_the_newest(cached):
    path, request = cached
    done = rewardcore("cache", "explain", path)
    assert request.key.hex()[:16] in done.stdout
    assert "2 newest" in done.stdout


@pytest.mark.parametrize(
    ("path", "key", "says"),
    [
        ("missing.sqlite", "", "cache missing.sqlite does not exist"),
        (None, "xyz", "KEY 'xyz' is not hexadecimal"),
        (None, "ffffffffffff", "has a key that begins with 'ffffffffffff'"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(cached, path, key, says):
    done = rewardcore("cache", "explain", path or cached[0], key)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_looking_for_a_missing_cache_does_not_make_one(tmp_path):
    rewardcore("cache", "explain", tmp_path / "none.sqlite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["memory"], ["memory", "--help"]])
def test_memory_says_that_a_config_is_enough_and_what_24g_is(arguments):
    done = rewardcore(*arguments)
    shown = " ".join(done.stdout.replace("│", " ").split())
    assert "config.json is enough, no weights are needed" in shown
    assert "24GiB, or 24G for short; 24GB is 24 × 10⁹ bytes" in shown
    assert done.stderr == ""


MEMORY = ["memory", "MODEL"]


@pytest.mark.parametrize(
    ("missing", "code", "arguments", "extra"),
    [
        ("typer", "from rewardcore.cli import main; main()", [], "cli"),
        ("torch", "from rewardcore.cli import main; main()", MEMORY, "torch"),
        ("matplotlib", "from rewardcore.cli import main; main()", [*MEMORY, "--plot", "memory.png"], "report"),
        *(
            (package, f"import rewardcore; rewardcore.{name}", [], extra)
            for package, name, extra in [
                ("torch", "TorchGenerator", "torch"),
                ("transformers", "TorchGenerator", "torch"),
                ("vllm", "VllmGenerator", "vllm"),
                ("verl", "VerlActorGenerator", "verl"),
            ]
        ),
    ],
)
def test_a_missing_package_names_its_extra(tmp_path, missing, code, arguments, extra):
    (tmp_path / "config.json").write_text("{}")
    blocked = f"import sys; sys.modules[{missing!r}] = None; {code}"
    arguments = [str(tmp_path) if argument == "MODEL" else argument for argument in arguments]
    done = subprocess.run([sys.executable, "-c", blocked, *arguments], capture_output=True, text=True)
    *_, last = done.stderr.splitlines()
    assert last.endswith(f"pip install 'rewardcore[{extra}]'")
    if "main()" in code:
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    else:
        assert last.startswith("rewardcore.failures.ConfigurationError: ")


def test_every_extra_that_is_named_exists():
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "".join(path.read_text() for path in (root / "rewardcore").rglob("*.py"))
    named = set(re.findall(r"rewardcore\[(\w+)\]|needs_extra\(\"(\w+)\"", sources))
    assert {a or b for a, b in named} | set(_GENERATORS.values()) <= set(extras)


def test_help_names_every_command():
    shown = rewardcore("--help").stdout
    assert "cache" in shown
    assert "memory" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["judge", "IN.jsonl", "OUT.jsonl", "--model=judge", "--base_url", "ftp://x", "--max_concurrent=3"],
        ["check", "ftp://x", "--api_key_env", "KEY", "--model", "judge"],
        ["cache", "prune", "missing.sqlite", "--keep_newest", "3", "--dry_run"],
    ],
)
def test_every_flag_may_be_spelled_with_underscores(arguments):
    done = rewardcore(*arguments)
    assert done.returncode in (1, 2)
    assert "No such option" not in done.stderr
    assert "base_url must begin with http" in done.stderr or "missing.sqlite does not exist" in done.stderr


def test_the_version_is_printed():
    assert rewardcore("--version").stdout == f"rewardcore {__version__}\n"


def test_help_documents_every_exit_code():
    shown = " ".join(rewardcore("--help").stdout.split())
    assert "0 done; 1 not judged, not reachable or failed; 2 wrong usage; 130 ended by Ctrl-C; 143 ended by" in shown


@pytest.mark.parametrize(
    ("shell", "words", "offers"),
    [
        ("bash", {"COMP_WORDS": "rewardcore ch", "COMP_CWORD": "1"}, "check"),
        ("bash", {"COMP_WORDS": "rewardcore cache ex", "COMP_CWORD": "2"}, "explain"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "rewardcore check --mo"}, '"--model":"The name that the endpoint serves."'),
        ("fish", {"_TYPER_COMPLETE_ARGS": "rewardcore doc", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "doctor"),
    ],
)
def test_a_shell_completes_commands_and_flags(shell, words, offers):
    """What `rewardcore --install-completion` makes the shell ask."""
    command = [sys.executable, "-m", "rewardcore"]
    environment = os.environ | words | {"_REWARDCORE_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert offers in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (None, 0, ""),
        (typer.Exit(1), 1, ""),
        (typer.Exit(3), 3, ""),
        (typer.BadParameter("--n must be above 0"), 2, "rewardcore: Invalid value: --n must be above 0\n"),
        (ConfigurationError("n must be\nabove 0"), 2, "rewardcore: n must be above 0\n"),
        (CacheError("a.sqlite is no cache"), 2, "rewardcore: a.sqlite is no cache\n"),
        (Failure("no"), 1, "rewardcore: no\n"),
        (NotJudged({1: Verdict("timeout")}, 4), 1, "rewardcore: 1 of 4 not judged (at 1), so there are no rewards"),
        (ServerFailed("vLLM died", "a\nb"), 1, "rewardcore: vLLM died; the end of its log:\na\nb\n"),
        (KeyboardInterrupt(), 130, "rewardcore: interrupted\n"),
        (Terminated(), 143, "rewardcore: terminated\n"),
        (noted(KeyboardInterrupt()), 130, "rewardcore: interrupted: run it again to go on\n"),
        (noted(Terminated()), 143, "rewardcore: terminated: run it again to go on\n"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_every_end_has_its_exit_code_and_one_sentence(capsys, monkeypatch, raised, code, says, nested):
    app = typer.Typer(cls=ending.Commands)
    inner = typer.Typer()
    app.add_typer(inner, name="inner")

    @(inner if nested else app).command()
    def command() -> None:
        if raised is not None:
            raise raised

    @(inner if nested else app).command()
    def other() -> None:
        pass

    monkeypatch.setattr(sys, "argv", ["rewardcore", *["inner"] * nested, "command"])
    assert ending.run(app) == code
    assert capsys.readouterr().err.startswith(says)
    assert (says == "") == (code in (0, 3) or isinstance(raised, typer.Exit))


def test_a_bug_is_a_traceback(monkeypatch):
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def command() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sys, "argv", ["rewardcore"])
    with pytest.raises(ZeroDivisionError):
        ending.run(app)


@pytest.mark.parametrize(
    ("number", "code", "says"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_signal_ends_a_command_that_waits_with_one_sentence(command, number, code, says):
    with socket.create_server(("127.0.0.1", 0)) as endpoint:  # accepts, and says nothing
        endpoint.settimeout(60)
        url = f"http://127.0.0.1:{endpoint.getsockname()[1]}/v1"
        process = subprocess.Popen(
            [sys.executable, "-m", "rewardcore", command, url, "--model", "judge", "--seconds", "3600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process, endpoint.accept()[0]:
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, f"rewardcore: {says}\n")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["doctor"]])
def test_a_reader_that_has_had_enough_is_no_error(arguments):
    """As in `rewardcore --help | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        command = [sys.executable, "-m", "rewardcore", *arguments]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "")

"""The command line: what it prints, and what it says about a mistake."""

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rewardcore import _GENERATORS, Endpoint, Sample, SqliteCache, rubrics
from rewardcore.http.request import RequestBuilder
from rewardcore.reply import Reply


def rewardcore(*arguments):
    command = [sys.executable, "-c", "from rewardcore.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


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

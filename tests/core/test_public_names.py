"""What `import rewardcore` gives, and what it does not bring along."""

import dataclasses
import inspect
import subprocess
import sys
import types

import pytest

import rewardcore


def test_the_exported_names_are_complete():
    found = {
        name
        for name, value in vars(rewardcore).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    found -= {"annotations"}
    assert set(rewardcore.__all__) == found | {"__version__", "rubrics"}


def test_the_exported_names_are_sorted():
    assert rewardcore.__all__ == sorted(rewardcore.__all__)


def test_every_name_the_specification_uses_is_there():
    names = {"Endpoint", "Judge", "Pending", "Sample", "Stats", "Verdict", "open_judge", "rubrics"}
    assert names <= set(rewardcore.__all__)
    assert {"QUALITY", "CORRECTNESS", "MONITOR", "QUESTION", "ANSWER", "SOLUTION"} <= set(vars(rewardcore.rubrics))


@pytest.mark.parametrize("name", [name for name in rewardcore.__all__ if name != "__version__"])
def test_every_public_name_says_what_it_is(name):
    value = getattr(rewardcore, name)
    assert value.__doc__
    if inspect.isclass(value):  # a dataclass writes its signature where no docstring is
        assert not value.__doc__.startswith(f"{name}(")


def test_a_sample_and_a_verdict_are_frozen_and_slotted():
    for value, field in ((rewardcore.Sample("p", "r"), "response"), (rewardcore.Verdict("failed"), "score")):
        assert not hasattr(value, "__dict__")
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, 1.0)


@pytest.mark.parametrize(("status", "score"), [("ok", None), ("failed", 0.0), ("unparsed", 0.0), ("timeout", 1.0)])
def test_a_verdict_has_a_score_exactly_when_it_is_ok(status, score):
    with pytest.raises(ValueError, match="exactly when it is ok"):
        rewardcore.Verdict(status, score)
    assert rewardcore.Verdict("ok", 0.0).score == 0.0


def test_importing_the_package_imports_no_client_and_no_model():
    heavy = [
        "httpx",
        "httpcore",
        "aiohttp",
        "yarl",
        "openai",
        "torch",
        "transformers",
        "vllm",
        "verl",
        "uvloop",
        "numpy",
    ]
    code = f"import sys, rewardcore; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_vllm_server_is_there_when_it_is_named_and_imports_no_vllm():
    code = "import sys, rewardcore; print('VllmServer' in dir(rewardcore), 'rewardcore.serving' in sys.modules)"
    code += "; print(rewardcore.VllmServer.__name__, {'vllm', 'torch', 'httpx', 'aiohttp'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\nVllmServer set()\n"
    assert rewardcore.VllmServer.__doc__
    with pytest.raises(AttributeError, match="has no attribute 'VlmServer'"):
        rewardcore.VlmServer  # noqa: B018


LOUD = """
import logging, rewardcore
log = logging.getLogger("rewardcore")
{}
log.info("low")
log.warning("loud %d", 7)
"""


@pytest.mark.parametrize(
    ("set_up", "shown"),
    [
        ("pass", "rewardcore: loud 7\n"),
        ("logging.basicConfig(format='%(name)s says %(message)s')", "rewardcore says loud 7\n"),
        ("logging.basicConfig(level=logging.INFO)", "INFO:rewardcore:low\nWARNING:rewardcore:loud 7\n"),
        ("log.setLevel(logging.ERROR)", ""),
        ("log.addHandler(logging.NullHandler())", ""),
    ],
)
def test_warnings_reach_stderr_without_any_set_up_and_once_with_one(set_up, shown):
    done = subprocess.run([sys.executable, "-c", LOUD.format(set_up)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", shown)

"""What `rewardcore.rewards` gives."""

import importlib
import inspect
import sys
import types

import pytest

from rewardcore import ConfigurationError, rewards


def test_the_exported_names_are_complete_and_sorted():
    found = {name for name, value in vars(rewards).items() if not isinstance(value, types.ModuleType)}
    assert rewards.__all__ == sorted(name for name in found if not name.startswith("_"))


@pytest.mark.parametrize("name", rewards.__all__)
def test_every_public_name_says_what_it_is(name):
    value = getattr(rewards, name)
    assert inspect.getdoc(value)
    assert not value.__doc__.startswith(f"{name}(")


def test_where_verl_is_not_there_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", None)
    monkeypatch.delitem(sys.modules, "rewardcore.trainers.verl", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'rewardcore\[verl\]'"):
        importlib.import_module("rewardcore.trainers.verl")

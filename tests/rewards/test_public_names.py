"""What `rewardcore.rewards` gives."""

import inspect
import types

import pytest

from rewardcore import rewards


def test_the_exported_names_are_complete_and_sorted():
    found = {name for name, value in vars(rewards).items() if not isinstance(value, types.ModuleType)}
    assert rewards.__all__ == sorted(name for name in found if not name.startswith("_"))


@pytest.mark.parametrize("name", rewards.__all__)
def test_every_public_name_says_what_it_is(name):
    value = getattr(rewards, name)
    assert inspect.getdoc(value)
    assert not value.__doc__.startswith(f"{name}(")

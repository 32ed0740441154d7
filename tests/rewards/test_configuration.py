"""One reader for dataclasses, keyword arguments and variables: what is wrong is named, with what would be right."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from rewardcore import ConfigurationError
from rewardcore.rewards.configuration import read, variable


@dataclass(frozen=True)
class Penalty:
    scale: float = 1.0
    enable: bool = variable(True, "PENALTY_ENABLE")
    places: int = variable(10, "PENALTY_PLACES")
    model: str | None = variable(None, "PENALTY_MODEL")
    limit: int | float | None = None
    names: list[str] = field(default_factory=list)
    cache: bool | str = True
    at_once: int | Literal["auto"] = 8


@dataclass(frozen=True)
class Needs:
    model: str = field(metadata={"variable": "NEEDS_MODEL"})


def test_nothing_given_is_the_defaults():
    assert read(Penalty, None, {}) == Penalty()


def test_what_is_a_configuration_is_taken_as_it_is():
    mine = Penalty(scale=3.0)
    assert read(Penalty, mine, {"PENALTY_PLACES": "99"}) is mine


def test_what_is_given_counts_before_the_variable_and_that_before_the_default():
    environment = {"PENALTY_PLACES": "20", "PENALTY_MODEL": "judge", "PENALTY_ENABLE": "  "}
    assert read(Penalty, {"places": 30}, environment) == Penalty(places=30, model="judge")


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("scale", 2, 2.0),
        ("scale", "0.5", 0.5),
        ("scale", "1e-3", 0.001),
        ("enable", "False", False),
        ("enable", "ON", True),
        ("enable", 0, None),
        ("places", "12", 12),
        ("places", 1.5, None),
        ("places", True, None),
        ("model", None, None),
        ("limit", "7", 7),
        ("limit", 0.5, 0.5),
        ("names", ["a"], ["a"]),
        ("cache", "false", False),
        ("cache", "a.sqlite", "a.sqlite"),
        ("at_once", "12", 12),
        ("at_once", " AUTO", "auto"),
        ("at_once", "many", None),
        ("at_once", True, None),
    ],
)
def test_texts_become_what_the_field_is_and_nothing_else_does(name, value, kept):
    if kept is None and value is not None:
        with pytest.raises(ConfigurationError, match=f"^{name} must be "):
            read(Penalty, {name: value}, {})
    else:
        found = getattr(read(Penalty, {name: value}, {}), name)
        assert (found, type(found)) == (kept, type(kept))


def test_what_a_field_may_be_is_told_with_its_words():
    with pytest.raises(ConfigurationError, match="at_once must be a whole number or \"auto\", not 'many'"):
        read(Penalty, {"at_once": "many"}, {})


def test_a_wrong_variable_is_named_by_its_own_name():
    with pytest.raises(ConfigurationError, match="PENALTY_PLACES must be a whole number, not 'many'"):
        read(Penalty, {}, {"PENALTY_PLACES": "many"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"scal": 1.0}, "scal is no field of Penalty; did you mean scale"),
        ({"wholly_else": 1}, "wholly_else is no field of Penalty; known are scale, enable"),
        ([("scale", 1.0)], "must be given as a mapping of its fields, not list"),
    ],
)
def test_what_is_no_field_is_an_error_that_names_the_nearest(given, says):
    with pytest.raises(ConfigurationError, match=says):
        read(Penalty, given, {})


def test_what_must_be_given_is_asked_for_with_its_variable():
    with pytest.raises(ConfigurationError, match="Needs needs model, or set NEEDS_MODEL"):
        read(Needs, {}, {})
    assert read(Needs, {}, {"NEEDS_MODEL": "judge"}) == Needs("judge")

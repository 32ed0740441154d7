"""What is told of an argument that is wrong: its name, what it must be, and what it is."""

import pytest

from rewardcore.arguments import check, check_choice, check_kind, check_seconds, check_whole
from rewardcore.failures import ConfigurationError


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: check_whole("n", 0), "n must be a whole number above 0, not 0"),
        (lambda: check_whole("n", True), "n must be a whole number above 0, not True"),
        (lambda: check_whole("n", 2.0, "auto", None), 'n must be a whole number above 0 or "auto" or None, not 2.0'),
        (lambda: check_whole("n", -1, least=0), "n must be a whole number of at least 0, not -1"),
        (lambda: check_whole("port", 65536, least=0, most=65535), "port must be a whole number from 0 to 65535, not"),
        (lambda: check_seconds("deadline", True), "deadline must be seconds above 0, not True"),
        (lambda: check_seconds("deadline", 10**400), "deadline must be seconds above 0, not 1000"),
        (lambda: check_seconds("deadline", float("nan")), "deadline must be seconds above 0, not nan"),
        (lambda: check_choice("mode", "fast", "sync", "self"), 'mode must be "sync" or "self", not \'fast\''),
        (lambda: check_kind("headers", "a key", "a mapping", dict), "headers must be a mapping, not str"),
        (lambda: check("text", "x" * 100, "short", False), "text must be short, not 'xxx"),
    ],
)
def test_a_wrong_argument_is_one_short_sentence(wrong, says):
    with pytest.raises(ConfigurationError) as caught:
        wrong()
    assert str(caught.value).startswith(says)
    assert len(str(caught.value)) < 90


def test_what_is_fine_is_not_told():
    check_whole("n", 1), check_whole("n", "auto", "auto"), check_whole("n", None, None), check_whole("n", 0, least=0)
    check_seconds("deadline", 0.5), check_choice("mode", "sync", "sync"), check_kind("headers", None, "a mapping", dict)

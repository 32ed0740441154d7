"""The mask: whole secrets and parts of them are hidden, and nothing else is touched."""

import logging

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rewardcore import Endpoint
from rewardcore.http.mask import Mask, Secret

KEY = "sk-abcdefghijklmnop"
TEAM = "team-0123456789"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"the key {KEY} is wrong", "the key *** is wrong"),
        (KEY, "***"),
        (f"{KEY}{KEY}", "******"),
        (f"{KEY} and {TEAM}", "*** and ***"),
        (f"Bearer {KEY}, {TEAM}!", "Bearer ***, ***!"),
        (f"ends in {KEY[-8:]}", "ends in ***"),
        (f"begins with {KEY[:8]}", "begins with ***"),
        (f"holds {KEY[4:14]} of it", "holds *** of it"),
        (f"cut: {KEY[:10]} / {KEY[10:]}", "cut: *** / ***"),
        (f"cut: {KEY[:9]}{TEAM[3:]}", "cut: ***"),
        (f"seven are no part: {KEY[:7]} {KEY[-7:]}", f"seven are no part: {KEY[:7]} {KEY[-7:]}"),
        ("", ""),
        ("nothing to hide", "nothing to hide"),
        ("nothing\0to hide", "nothing\0to hide"),
    ],
)
def test_a_secret_and_any_part_worth_having_are_hidden(text, shown):
    assert Mask([KEY, TEAM])(text) == shown


@pytest.mark.parametrize("start", range(len(KEY) - 7))
def test_any_eight_characters_in_a_row_are_a_part(start):
    assert Mask([KEY])(f"<{KEY[start : start + 8]}>") == "<***>"


def test_the_longest_secret_goes_first_so_that_no_tail_of_it_is_left():
    for secrets in (["secret", "secret-longer"], ["secret-longer", "secret"]):
        assert Mask(secrets)("a secret-longer and a secret") == "a *** and a ***"


@pytest.mark.parametrize("secret", ["", "a", "Bearer"[:5], "judge"])
def test_a_text_shorter_than_six_is_no_secret(secret):
    assert Mask([secret, KEY])(f"judge: Bearer {secret} abc") == f"judge: Bearer {secret} abc"


@pytest.mark.parametrize("secret", ["abcdef", "abcdefg"])
def test_a_short_secret_is_hidden_as_a_whole_only(secret):
    assert Mask([secret])(f"{secret} {secret[:-1]}") == f"*** {secret[:-1]}"


def test_a_mask_without_secrets_changes_nothing():
    assert Mask([])(KEY) == KEY
    assert Mask([""])(KEY) == KEY


@pytest.mark.parametrize(
    "text", ["abcdefghijkl", "efghijklmnop", "abcdefghijklmnop", "defghijklm", "abcdefghabcdefghijklmnop"]
)
def test_secrets_that_overlap_are_hidden_together(text):
    masked = Mask(["abcdefghijkl", "efghijklmnop", "ghijklmn"])(text)
    assert len(masked.replace("*", "")) < 8
    assert "***" in masked


few_letters = st.text("abc", max_size=40)


@given(st.lists(few_letters, max_size=4), few_letters)
def test_whatever_the_secrets_none_of_them_is_left(secrets, text):
    masked = Mask(secrets)(text)
    for secret in secrets:
        if len(secret) >= 6:
            assert secret not in masked
            assert not any(secret[start : start + 8] in masked for start in range(len(secret) - 7))


@given(st.lists(few_letters, max_size=4), few_letters)
def test_what_is_masked_once_stays_as_it_is(secrets, text):
    mask = Mask(secrets)
    assert mask(mask(text)) == mask(text)


@given(st.text())
def test_a_text_that_shares_nothing_with_a_secret_is_left_alone(text):
    assume(not any(KEY[start : start + 8] in text for start in range(len(KEY) - 7)))
    assert Mask([KEY])(text) == text


def test_a_secret_shows_as_stars_and_reads_as_itself():
    secret = Secret(KEY)
    assert (repr(secret), repr({"Authorization": secret}), secret) == ("'***'", "{'Authorization': '***'}", KEY)


# Logs.


@pytest.fixture
def logger():
    """One that nobody else has, and that must be left as it was."""
    logger = logging.getLogger("tests.secrets")
    yield logger
    assert logger.filters == []


def test_a_watched_log_shows_no_secret(logger, caplog):
    mask = Mask([KEY])
    mask.watch_logs(logger.name)
    with caplog.at_level(logging.DEBUG, logger.name):
        logger.debug("the key is %s, %d times", KEY, 2)
        logger.debug("100%% of " + KEY)
        logger.debug("no secret, 100% true")
    mask.forget_logs(logger.name)
    assert caplog.messages == ["the key is ***, 2 times", "100%% of ***", "no secret, 100% true"]
    assert [record.args for record in caplog.records] == [()] * 3


def test_a_log_that_was_forgotten_is_as_before(logger, caplog):
    mask = Mask([KEY])
    mask.watch_logs(logger.name)
    mask.watch_logs(logger.name)
    mask.forget_logs(logger.name)
    mask.forget_logs(logger.name)
    with caplog.at_level(logging.DEBUG, logger.name):
        logger.debug("a %s", "word")
    assert [(record.msg, record.args) for record in caplog.records] == [("a %s", ("word",))]


def test_two_masks_watch_one_log_and_each_takes_only_itself_away(logger, caplog):
    one, other = Mask([KEY]), Mask([TEAM])
    one.watch_logs(logger.name)
    other.watch_logs(logger.name)
    with caplog.at_level(logging.DEBUG, logger.name):
        logger.debug("%s %s", KEY, TEAM)
        one.forget_logs(logger.name)
        logger.debug("%s", TEAM)
    other.forget_logs(logger.name)
    assert caplog.messages == ["*** ***", "***"]


def test_several_logs_are_watched_at_once(logger):
    mask, names = Mask([KEY]), (logger.name, logger.name + ".child")
    mask.watch_logs(*names)
    assert [len(logging.getLogger(name).filters) for name in names] == [1, 1]
    mask.forget_logs(*names)
    assert [len(logging.getLogger(name).filters) for name in names] == [0, 0]


def test_a_mask_without_secrets_watches_nothing(logger):
    Mask(["short"]).watch_logs(logger.name)
    assert logger.filters == []
    Mask(["short"]).forget_logs(logger.name)


# What an endpoint hides.


def test_an_endpoint_hides_its_key_and_every_word_of_its_headers(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    headers = {"X-Team": f"Token {TEAM}", "X-Two": "first-word second-word", "X-Short": "v1"}
    mask = Endpoint("http://127.0.0.1:8000/v1", "judge", api_key_env="JUDGE_KEY", headers=headers).mask()
    assert mask(f"{KEY} {TEAM} first-word second-word v1 Token") == "*** *** *** *** v1 Token"
    assert mask(f"{KEY[:9]} {TEAM[-8:]}") == "*** ***"


def test_an_endpoint_without_a_key_or_headers_hides_nothing(monkeypatch):
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    mask = Endpoint("http://127.0.0.1:8000/v1", "judge", api_key_env="JUDGE_KEY").mask()
    assert mask(f"{KEY} JUDGE_KEY") == f"{KEY} JUDGE_KEY"

"""What an engine is made with: settings that make sense, and no more requests than files may be opened."""

import logging
import re
import sys

import pytest

from rewardcore import ConfigurationError, Endpoint, MemoryCache
from rewardcore.failures import Transient
from rewardcore.http.pace import AUTO_CEILING
from rewardcore.http.settings import Settings

resource = pytest.importorskip("resource")
ENDPOINT = Endpoint("http://127.0.0.1:8000/v1", "judge")


@pytest.fixture
def may_open(monkeypatch):
    """Says how many files this process may open; the hard limit is higher."""

    def set_limit(files):
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, resource.RLIM_INFINITY))

    return set_limit


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "rewardcore")
    return caplog


def limit(max_concurrent, places=None):
    return Settings(ENDPOINT, max_concurrent=max_concurrent, cache=None).new_engine(places).pace


def test_more_requests_than_files_are_fewer_requests_and_one_warning(may_open, warnings):
    may_open(1000)
    assert 500 < limit(5000).window < 1000
    (record,) = warnings.records
    assert (record.name, record.levelno) == ("rewardcore", logging.WARNING)
    for part in ("max_concurrent=5000", "1000 files", "`ulimit -n "):
        assert part in record.getMessage()


def test_the_warning_says_how_many_are_sent_and_which_limit_would_do(may_open, warnings):
    may_open(1000)
    places = limit(5000).window
    assert f"at most {places} requests" in warnings.messages[0]
    enough = int(re.search(r"ulimit -n (\d+)", warnings.messages[0])[1])
    warnings.clear()
    may_open(enough)
    assert limit(5000).window == 5000
    may_open(enough - 1)
    assert warnings.records == []
    assert limit(5000).window == 4999
    assert len(warnings.records) == 1


@pytest.mark.parametrize("files", [1000, 2**20, resource.RLIM_INFINITY])
def test_what_fits_is_left_as_it_is_without_a_word(may_open, warnings, files):
    may_open(files)
    assert limit(60).window == 60
    assert warnings.records == []


def test_no_limit_is_no_limit(may_open, warnings):
    may_open(resource.RLIM_INFINITY)
    assert limit(100_000).window == 100_000
    assert limit("auto").ceiling == AUTO_CEILING
    assert warnings.records == []


def test_auto_finds_no_more_than_there_may_be_files(may_open, warnings):
    may_open(300)
    assert 1 <= limit("auto").ceiling < 300
    may_open(2**20)
    assert limit("auto").ceiling == AUTO_CEILING
    assert warnings.records == []


@pytest.mark.parametrize("max_concurrent", [60, "auto"])
@pytest.mark.parametrize("files", [0, 1, 8])
def test_hardly_any_file_is_still_one_request(may_open, max_concurrent, files):
    may_open(files)
    found = limit(max_concurrent)
    assert (found.window, found.ceiling) == (1, 1)


def test_a_driver_that_knows_its_places_is_not_asked_about_files(monkeypatch, warnings):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: pytest.fail("the limit was looked up"))
    assert limit(5000, places=4).window == 4
    assert limit(3, places=4).window == 3
    assert limit("auto", places=4).ceiling == 4
    assert warnings.records == []


def test_a_system_without_such_a_limit_has_none(monkeypatch, warnings):
    monkeypatch.setitem(sys.modules, "resource", None)
    assert limit(5000).window == 5000
    assert warnings.records == []


def test_a_limit_that_cannot_be_read_is_none(monkeypatch, warnings):
    def unreadable(kind):
        raise OSError("not here")

    monkeypatch.setattr(resource, "getrlimit", unreadable)
    assert limit(5000).window == 5000
    assert warnings.records == []


# What else is checked.


@pytest.mark.parametrize("cache", ["", " ", ":memory:", 7, 1.5, {}, [], b"judge.sqlite", object()])
def test_a_cache_that_is_none_is_named_before_anything_starts(cache):
    with pytest.raises(ConfigurationError, match="cache must be True"):
        Settings(ENDPOINT, cache=cache)


@pytest.mark.parametrize("cache", [True, False, None, "judge.sqlite", MemoryCache()])
def test_a_cache_may_be_a_choice_a_path_or_an_object(cache):
    assert Settings(ENDPOINT, cache=cache).cache is cache


def test_what_cannot_wrap_a_transport_is_named_before_anything_starts():
    with pytest.raises(
        ConfigurationError, match="wrap_transport must be a function that is given the mode's transport"
    ):
        Settings(ENDPOINT, wrap_transport="httpx")


@pytest.mark.parametrize("max_retries", [-1, 2.0, True, None, "5"])
def test_max_retries_that_is_no_number_is_named_before_anything_starts(max_retries):
    with pytest.raises(ConfigurationError, match="max_retries must be a whole number of at least 0"):
        Settings(ENDPOINT, max_retries=max_retries)


def test_the_engine_is_told_how_often_to_try_again():
    faults = [Transient("x")] * 3
    assert Settings(ENDPOINT, max_retries=2).new_engine().blame.is_final(faults)
    assert not Settings(ENDPOINT, max_retries=3).new_engine().blame.is_final(faults)

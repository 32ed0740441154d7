"""What headers say of a quota, in the styles of OpenAI and of Anthropic; nonsense says nothing."""

import datetime
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewardcore.http.quota_headers import read_quota
from rewardcore.reply import Quota

NOW = datetime.datetime(2026, 1, 31, 12, 0, 0, tzinfo=datetime.UTC)
OPENAI = {
    "x-ratelimit-limit-requests": "100",
    "x-ratelimit-remaining-requests": "40",
    "x-ratelimit-reset-requests": "10s",
}
ANTHROPIC = {
    "anthropic-ratelimit-requests-limit": "100",
    "anthropic-ratelimit-requests-remaining": "40",
    "anthropic-ratelimit-requests-reset": "2026-01-31T12:00:10Z",
}
STYLES = pytest.mark.parametrize("told", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
USAGE = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}


def read(headers, usage=None):
    return read_quota(headers, usage, NOW.timestamp)


def of_tokens(told):
    return {name.replace("requests", "tokens"): value for name, value in told.items()}


@STYLES
def test_a_quota_is_the_limit_what_is_left_and_when_all_of_it_is_back(told):
    assert read(told) == Quota(100, 40, 10.0, 1)


@STYLES
@pytest.mark.parametrize("nonsense", ["-1", "many", "1.5x", "", "²", "9" * 5000, "1e3"])
def test_a_quota_that_is_not_all_there_is_none(told, nonsense):
    for name in told:
        assert read({**told, name: nonsense}) is None
        assert read({other: value for other, value in told.items() if other != name}) is None


@STYLES
def test_more_left_than_there_is_or_a_limit_of_nothing_is_nonsense(told):
    limit, left, _ = told
    assert read({**told, left: "101"}) is None
    assert read({**told, limit: "0", left: "0"}) is None


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("10s", 10.0),
        ("500ms", 0.5),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("1d", 86400.0),
        ("2", 2.0),
        ("1.5", 1.5),
        ("0", 0.0),
        ("s", None),
        ("10 s", None),
        ("-1s", None),
        ("soon", None),
    ],
)
def test_openais_durations_are_read_in_every_spelling(reset, seconds):
    quota = read({**OPENAI, "x-ratelimit-reset-requests": reset})
    assert (None if quota is None else quota.reset) == seconds


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("2026-01-31T12:00:10Z", 10.0),
        ("2026-01-31T12:00:00.500Z", 0.5),
        ("2026-01-31T13:01:00+01:00", 60.0),
        ("2026-01-31T12:00:10", 10.0),
        ("2026-01-31T11:59:00Z", 0.0),
        ("2026-99-31T12:00:10Z", None),
        ("10s", None),
    ],
)
def test_anthropics_moments_are_seconds_from_now_and_none_of_them_is_in_the_past(reset, seconds):
    quota = read({**ANTHROPIC, "anthropic-ratelimit-requests-reset": reset})
    assert (None if quota is None else quota.reset) == seconds


@STYLES
def test_of_requests_and_tokens_the_one_with_the_smaller_share_left_counts(told):
    scarce = {name: "1000" if "limit" in name.split("-")[-2:] else value for name, value in of_tokens(told).items()}
    assert read({**told, **scarce}, USAGE) == Quota(1000, 40, 10.0, 50)
    plenty = {name: "90" if "remaining" in name else value for name, value in of_tokens(told).items()}
    assert read({**told, **plenty}, USAGE) == Quota(100, 40, 10.0, 1)


@STYLES
def test_what_a_refused_request_would_have_cost_in_tokens_is_not_known(told):
    assert read(of_tokens(told)) == Quota(100, 40, 10.0, 0)
    assert read(of_tokens(told), {"prompt_tokens": 3}) == Quota(100, 40, 10.0, 0)


@given(st.dictionaries(st.sampled_from([*OPENAI, *ANTHROPIC, *of_tokens(OPENAI)]), st.text(max_size=30)))
def test_whatever_headers_say_a_quota_makes_sense(headers):
    quota = read(headers)
    assert quota is None or (0 <= quota.left <= quota.limit and 0.0 <= quota.reset < math.inf)

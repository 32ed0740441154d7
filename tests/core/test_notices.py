"""What is told and how often: the first trouble at once, then a line in ten seconds; a call's losses in one line."""

import pytest

from rewardcore import Verdict
from rewardcore.failures import ConnectionFailed, RateLimited
from rewardcore.notices import Losses, Tally, Trouble


class Time:
    now = 100.0

    def __call__(self):
        return self.now


def tally(*verdicts):
    found = Tally()
    for verdict in verdicts:
        found.add(verdict)
    return found


OK, LATE = Verdict("ok", 1.0), Verdict("timeout", error="DeadlinePassed: not judged before the deadline")
GONE = Verdict("failed", error="ConnectionFailed: no connection to judge:80: refused")


def test_the_first_failed_attempt_is_told_at_once_and_the_next_ones_together_after_ten_seconds():
    trouble = Trouble()
    assert trouble.told(RateLimited("judge answered 429"), 5.0, 59) == "RateLimited: judge answered 429"
    assert [trouble.told(RateLimited("429"), 5.0 + tenths / 10, 40) for tenths in range(99)] == [None] * 99
    told = trouble.told(ConnectionFailed("no connection\nto judge"), 15.0, 40)
    assert told == (
        "100 requests failed in 10.0 s: 99 RateLimited, 1 ConnectionFailed (the latest: no connection to judge)"
    )
    assert trouble.told(RateLimited("429"), 24.9, 40) is None
    assert trouble.told(RateLimited("429"), 90.0, 40) == "2 requests failed in 75.0 s: 2 RateLimited (the latest: 429)"


def test_a_cut_to_half_of_what_was_told_is_a_line_of_its_own():
    trouble = Trouble()
    trouble.told(RateLimited("429"), 5.0, 59)
    assert trouble.told(RateLimited("429"), 5.5, 30) is None
    assert trouble.told(RateLimited("429"), 6.0, 29) == "2 requests failed in 1.0 s: 2 RateLimited (the latest: 429)"
    assert [trouble.told(RateLimited("429"), 7.0, few) for few in (10, 1, 0.1)] == [None] * 3
    assert trouble.told(RateLimited("429"), 15.0, 1) is not None


def test_a_call_that_lost_something_ends_with_one_line_that_says_what(lines):
    Losses(Time()).ended(tally(*[LATE] * 12, *[GONE] * 5, *[OK] * 239), 256)
    assert lines == [
        "17 of 256 not judged: 12 timeout, 5 ConnectionFailed (not judged before the deadline);"
        " to wait longer, raise deadline"
    ]


def test_a_call_that_lost_nothing_ends_without_a_word(lines):
    Losses(Time()).ended(tally(OK, OK), 2)
    assert lines == []


@pytest.mark.parametrize("status", ["unparsed", "refused", "truncated"])
def test_a_status_is_counted_by_its_own_name(lines, status):
    Losses(Time()).ended(tally(OK, Verdict(status, error="Kind: what was said")), 2)
    assert lines == [f"1 of 2 not judged: 1 {status} (what was said)"]


def test_thousands_of_calls_are_told_together(lines):
    """As a trainer calls that judges one sample at a time."""
    time, count = Time(), 8000
    losses = Losses(time)
    for _ in range(count):
        time.now += 0.005
        losses.ended(tally(GONE), 1)
    losses.flush()
    assert len(lines) <= 5 + count * 0.005 / 10 + 1
    assert lines[0] == "1 of 1 not judged: 1 ConnectionFailed (no connection to judge:80: refused)"
    assert sum(int(line.split()[0]) for line in lines) == count
    assert any(" calls: " in line for line in lines)


@pytest.mark.parametrize(
    ("status", "end"), [("failed", "…"), ("timeout", "…; to wait longer, raise deadline")], ids=["failed", "timeout"]
)
def test_a_line_stays_a_line_and_loses_nothing_of_what_to_do(lines, status, end):
    Losses(Time()).ended(tally(Verdict(status, error="Kind: " + "very long\n" * 1000)), 1)
    (line,) = lines
    assert len(line) == 240
    assert "\n" not in line
    assert line.endswith(end)

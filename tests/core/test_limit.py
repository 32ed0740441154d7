"""Adaptive concurrency against simulated endpoints: seeded, virtual time, no IO."""

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore.http.limit import AUTO_CEILING, AUTO_START, Limit

TOKENS = 100


class Simulation:
    """A client that keeps `limit.current` requests in flight, and an endpoint described by three functions of load."""

    def __init__(self, limit, capacity=10**9, seconds=lambda load: 1.0, quota=lambda load: None, seed=0):
        self.limit, self.capacity, self.seconds, self.quota = limit, capacity, seconds, quota
        self.random = random.Random(seed)
        self.now = 0.0
        self.seen = []  # (time, limit) at every event
        self.most = self.served = self.refused = 0
        self._air = []
        self._serving = 0

    def run(self, until):
        while True:
            while len(self._air) < self.limit.current:
                self._send()
            if self._air[0][0] >= until:
                return self
            self.now, number, sent_at, accepted, tokens = heapq.heappop(self._air)
            if accepted:
                self._serving -= 1
                self.served += 1
                self.limit.succeeded(number, self.now - sent_at, tokens, self.quota(self._serving))
            else:
                self.refused += 1
                self.limit.rate_limited(number)
            self.seen.append((self.now, self.limit.current))

    def _send(self):
        accepted = self._serving < self.capacity
        self._serving += accepted
        tokens = self.random.randint(TOKENS // 2, 2 * TOKENS)
        pace = self.seconds(self._serving) * tokens / TOKENS
        duration = self.random.uniform(0.8, 1.2) * pace if accepted else 0.05
        heapq.heappush(self._air, (self.now + duration, self.limit.departed(), self.now, accepted, tokens))
        self.most = max(self.most, len(self._air))

    def between(self, start, end):
        return [limit for time, limit in self.seen if start <= time < end]


def mean(values):
    return sum(values) / len(values)


def test_auto_starts_low():
    assert Limit.auto().current == AUTO_START == 8


def test_auto_doubles_each_round_while_the_endpoint_keeps_up():
    limit = Limit.auto()
    for size in (8, 16, 32, 64, 128, 256):
        assert limit.current == size
        replies(limit, size)
    assert limit.current == AUTO_CEILING == 512
    replies(limit, 512)
    assert limit.current == AUTO_CEILING


def replies(limit, count, seconds=1.0, tokens=TOKENS, quota=None):
    """A full round: all leave before the first reply comes."""
    for number in [limit.departed() for _ in range(count)]:
        limit.departed()  # each reply makes room for the next
        limit.succeeded(number, seconds, tokens, quota)


def test_places_that_nobody_uses_earn_no_more():
    """500 replies, one at a time, are no reason to let 500 go at once."""
    limit = Limit.auto()
    for _ in range(500):
        limit.succeeded(limit.departed(), 1.0, TOKENS)
    assert limit.current == AUTO_START


@pytest.mark.parametrize("seed", range(5))
def test_auto_finds_a_concurrency_limit_of_80_and_stays_near_it(seed):
    simulation = Simulation(Limit.auto(), capacity=80, seed=seed).run(until=200.0)
    settled = simulation.between(50.0, 200.0)
    assert min(settled) >= 80 * 0.6
    assert max(settled) <= 80 * 1.5
    assert 80 * 0.7 <= mean(settled) <= 80 * 1.1
    assert simulation.refused < 0.05 * simulation.served


@pytest.mark.parametrize("seed", range(3))
def test_a_burst_of_429s_cuts_the_limit_once(seed):
    simulation = Simulation(Limit.fixed(200), capacity=80, seed=seed).run(until=0.06)
    assert simulation.refused > 100
    assert simulation.limit.current == 140


def test_replies_to_requests_sent_before_the_cut_do_not_cut_again():
    limit = Limit.fixed(100)
    burst = [limit.departed() for _ in range(50)]
    for number in burst:
        limit.rate_limited(number)
    assert limit.current == 70
    limit.rate_limited(limit.departed())
    assert limit.current == 49


def test_after_a_total_refusal_it_doubles_back_to_where_the_first_cut_was():
    limit = Limit.fixed(100)
    while limit.current > 1:
        limit.rate_limited(limit.departed())
    for size in (1, 2, 4, 8, 16, 32):
        replies(limit, size)
    assert limit.current == 64


@pytest.mark.parametrize("start", [Limit.auto, lambda: Limit.fixed(200)], ids=["auto", "fixed"])
def test_it_recovers_when_the_endpoint_grows_again(start):
    simulation = Simulation(start(), capacity=80).run(until=60.0)
    simulation.capacity = 10
    simulation.run(until=120.0)
    assert mean(simulation.between(90.0, 120.0)) < 30
    simulation.capacity = 10**9
    simulation.run(until=300.0)
    assert simulation.limit.current > 80


def test_it_never_falls_below_one_and_still_recovers_from_there():
    simulation = Simulation(Limit.auto(), capacity=0).run(until=30.0)
    assert simulation.limit.current == 1
    simulation.capacity = 10**9
    simulation.run(until=100.0)
    assert simulation.limit.current > AUTO_START


def test_a_remaining_quota_bounds_the_limit():
    limit = Limit.fixed(60)
    for quota, bound in ((1000, 60), (7, 7), (0, 1)):
        limit.succeeded(limit.departed(), 1.0, quota=quota)
        assert limit.current == bound


def test_a_quota_that_is_renewed_lets_the_limit_grow_back():
    limit = Limit.fixed(60)
    limit.succeeded(limit.departed(), 1.0, quota=5)
    replies(limit, 60, quota=1000)
    assert limit.current == 60


@pytest.mark.parametrize("seed", range(3))
def test_seconds_per_token_that_rise_with_the_load_hold_the_limit_back(seed):
    """An endpoint that never says 429 but queues: 40 are served at once, and the rest wait."""
    queueing = Simulation(Limit.auto(), seconds=lambda load: max(1.0, load / 40), seed=seed).run(until=300.0)
    assert 40 <= mean(queueing.between(100.0, 300.0)) <= 160
    roomy = Simulation(Limit.auto(), seconds=lambda load: 1.0, seed=seed).run(until=300.0)
    assert roomy.limit.current == AUTO_CEILING


@pytest.mark.parametrize("seed", range(3))
def test_an_endpoint_that_becomes_slow_for_reasons_of_its_own_is_not_given_up(seed):
    """Slow at the load we began with is the new normal, not our doing."""
    simulation = Simulation(Limit.auto(), seed=seed).run(until=30.0)
    simulation.seconds = lambda load: 6.0
    simulation.run(until=2000.0)
    assert simulation.limit.current > AUTO_START


@pytest.mark.parametrize("seed", range(3))
def test_one_quick_reply_at_the_start_does_not_make_all_others_slow(seed):
    limit = Limit.auto()
    limit.succeeded(limit.departed(), 0.01, TOKENS)
    simulation = Simulation(limit, seed=seed).run(until=30.0)
    assert simulation.limit.current == AUTO_CEILING


def test_replies_that_count_no_tokens_are_paced_by_their_time():
    limit = Limit.auto()
    replies(limit, 100, tokens=None)
    before = limit.current
    replies(limit, 20, seconds=5.0, tokens=None)
    assert limit.current < before


def test_a_fixed_limit_is_not_moved_by_latency():
    limit = Limit.fixed(60)
    for seconds in (0.1, 1.0, 10.0, 100.0):
        limit.succeeded(limit.departed(), seconds, 1)
    assert limit.current == 60


outcomes = st.lists(
    st.tuples(
        st.sampled_from(["fine", "429"]),
        st.floats(0.0, 10.0),
        st.none() | st.integers(0, 10**6),
        st.none() | st.integers(0, 10**9),
    ),
    max_size=300,
)


@settings(deadline=None)
@given(st.none() | st.integers(1, 200), outcomes)
def test_whatever_happens_the_limit_lies_between_one_and_its_ceiling(fixed, outcomes):
    limit = Limit.auto() if fixed is None else Limit.fixed(fixed)
    for kind, seconds, tokens, quota in outcomes:
        number = limit.departed()
        if kind == "fine":
            limit.succeeded(number, seconds, tokens, quota)
        else:
            limit.rate_limited(number)
        assert type(limit.current) is int
        assert 1 <= limit.current <= (AUTO_CEILING if fixed is None else fixed)


@pytest.mark.parametrize("ceiling", [1, 7, 60])
def test_a_fixed_limit_never_exceeds_its_ceiling(ceiling):
    simulation = Simulation(Limit.fixed(ceiling), capacity=ceiling // 2 + 1).run(until=100.0)
    assert simulation.most <= ceiling
    simulation.capacity = 10**9
    assert simulation.run(until=300.0).most == ceiling

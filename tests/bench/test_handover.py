"""The figures that time does not show: work of submit, bytes of a stream, prefixes; and the ideal of uneven latency."""

from __future__ import annotations

import pytest

from bench import handover
from bench.handover import Tally, counting_bytecodes
from bench.ideal import list_schedule
from bench.prefix_blocks import BLOCK, PrefixBlocks
from bench.scenarios import GUARDS, REGISTRY, Scenario
from bench.virtual import VirtualClock
from rewardcore import Sample, Verdict
from rewardcore.testing.latency import LatencyModel, Profile
from tests.bench.test_runner import run_scenario

OK = Verdict("ok", 0.5, "because", None, False, 1, 0.1, None)


@pytest.mark.parametrize(
    ("seconds", "places", "makespan"),
    [([], 3, 0.0), ([2.0] * 7, 3, 6.0), ([5.0, 1.0, 1.0, 1.0], 2, 5.0), ([1.0, 1.0, 1.0, 5.0], 2, 6.0)],
)
def test_list_scheduling_gives_the_next_to_whoever_is_free_first(seconds, places, makespan):
    assert list_schedule(seconds, places) == makespan


@pytest.mark.parametrize("id", ["uneven-lognormal", "uneven-stragglers"])
def test_uneven_latency_is_scheduled_as_well_as_can_be(id):
    found = run_scenario(REGISTRY[id])
    assert found.efficiency == pytest.approx(1.0, abs=1e-9)
    assert found.scenario.ideal > 1.1 * found.scenario.profile.latency * 1024 / 60  # it is uneven indeed


@pytest.mark.parametrize("scenario", [s for s in GUARDS if s.n <= 512], ids=lambda scenario: scenario.id)
def test_a_guard_gives_the_same_figures_twice_and_judges_every_sample(scenario: Scenario):
    found = run_scenario(scenario)
    assert found == run_scenario(scenario)
    assert found.statuses == {"ok": scenario.n}


def test_what_is_refused_waits_as_long_as_it_was_asked_to():
    crowd = run_scenario(REGISTRY["refused-crowd"])
    assert crowd.refused
    assert crowd.too_soon == 0
    assert crowd.pause >= REGISTRY["refused-crowd"].profile.retry_after


def test_an_outage_begins_and_ends_when_the_profile_says():
    model = LatencyModel(Profile(outage_start=5.0, outage_seconds=10.0, error_status=500))
    assert [model.decide(1, 1, 100.0 + now).status for now in (0.0, 4.9, 5.0, 14.9, 15.0)] == [200, 200, 500, 500, 200]


def test_bytecodes_are_those_of_rewardcore_in_this_thread():
    with counting_bytecodes() as none:
        sorted(range(1000), key=lambda number: -number)
    assert none.total == 0
    with counting_bytecodes() as few:
        Sample("a", "b")
    with counting_bytecodes() as more:
        [Sample("a", "b") for _ in range(3)]
    assert more.total == 3 * few.total > 0


def test_a_stream_leaves_no_more_behind_than_its_latencies():
    """A float and its place for each sample, until the 4,096 that percentiles are made of are there."""
    found = run_scenario(REGISTRY["calls-stream"])
    assert found.left_behind == 32
    assert found.digest == run_scenario(REGISTRY["respx/asyncio-httpx/1024"]).digest


def test_a_streams_memory_is_read_while_the_judge_stands_still(monkeypatch):
    """Else it depends on how far the judge's thread has come, and one revision differs from itself."""
    run, busy = VirtualClock.run, []

    def watched(clock, main):
        monkeypatch.setattr(handover, "_held_bytes", lambda: busy.append(len(clock._busy)) or 0)
        return run(clock, main)

    monkeypatch.setattr(VirtualClock, "run", watched)
    run_scenario(REGISTRY["calls-stream"])
    assert busy == [1, 1], "the reader alone"


@pytest.mark.parametrize("id", ["warm-memory", "warm-file"])
def test_a_warm_cache_sends_nothing_and_says_the_same(id):
    found = run_scenario(REGISTRY[id])
    assert (found.requests, found.cached, found.wrong_from_cache) == (0, 4096, 0)


def test_a_digest_is_over_statuses_scores_and_texts_and_their_places():
    def digest(*verdicts: tuple[int, Verdict]) -> str:
        tally = Tally()
        for place, verdict in verdicts:
            tally.add(place, verdict)
        return tally.digest

    other = Verdict("ok", 0.5, "therefore", None, False, 1, 0.1, None)
    assert digest((0, OK), (1, other)) == digest((1, other), (0, OK))
    assert len({digest((0, OK)), digest((0, other)), digest((0, OK), (1, other)), digest((0, other), (1, OK))}) == 4


def test_a_prefix_is_known_in_whole_blocks_and_only_while_there_is_room():
    blocks = PrefixBlocks(room=4)
    prompt = bytes(2 * BLOCK)
    blocks.see(prompt + b"a" * BLOCK)
    blocks.see(prompt + b"b" * BLOCK)
    assert blocks.share == 2 / 6
    blocks.see(b"c" * 4 * BLOCK)  # it takes all the room
    blocks.see(prompt)
    assert blocks.share == 2 / 12


def test_responses_of_one_group_share_more_than_those_of_many():
    groups, others = run_scenario(REGISTRY["calls-groups"]), run_scenario(REGISTRY["calls-single"])
    assert groups.prefix_share > others.prefix_share + 0.2

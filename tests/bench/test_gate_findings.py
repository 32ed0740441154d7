"""What the gate says of two revisions, as pure comparisons: exact figures, counts, pairs, and all of them together."""

from __future__ import annotations

import json
import random
import re

import pytest

from bench.gate import instructions, paired
from bench.gate.findings import EXIT_CODES, Figure, Finding, Measured, agreed, compare_exact, verdict
from bench.gate.report import Report
from bench.gate.statistics import Ratio, ratio_of, ratio_of_rounds

A_DIGEST = Figure("aa", "", "equal")


def measured(**figures: Figure) -> Measured:
    return Measured({"naive": 3}, {"naive": {name.replace("_", " "): figure for name, figure in figures.items()}})


def outcome_of(before: Figure, after: Figure, **explained: str) -> str:
    (finding,) = compare_exact(measured(figure=before), measured(figure=after), explained)
    return finding.outcome


@pytest.mark.parametrize(
    ("direction", "before", "after", "outcome"),
    [
        ("lower", 36.0, 36.0, "pass"),
        ("lower", 36.0, 34.0, "pass"),
        ("lower", 36.0, 36.001, "fail"),
        ("lower", 0, 1, "fail"),
        ("higher", 0.9, 0.91, "pass"),
        ("higher", 0.9, 0.89, "fail"),
        ("equal", 60, 60, "pass"),
        ("equal", 60, 59, "fail"),
        ("equal", 60, 61, "fail"),
        ("equal", "aa", "aa", "pass"),
        ("equal", "aa", "ab", "fail"),
        ("lower", 0.1 + 0.2, 0.3, "pass"),  # the last digit of a float is no worsening
    ],
)
def test_any_worsening_of_an_exact_figure_fails(direction, before, after, outcome):
    assert outcome_of(Figure(before, "s", direction), Figure(after, "s", direction)) == outcome


@pytest.mark.parametrize(("after", "outcome"), [(1019, "pass"), (1021, "fail")])
def test_a_count_of_work_may_grow_by_less_than_two_per_cent(after, outcome):
    assert outcome_of(Figure(1000, "bytecodes"), Figure(after, "bytecodes")) == outcome


def test_a_digest_may_change_where_a_commit_explains_it():
    changed = Figure("bb", "", "equal")
    assert outcome_of(A_DIGEST, changed) == "fail"
    assert outcome_of(A_DIGEST, changed, figure="fractions are read") == "pass"


@pytest.mark.parametrize(
    ("base", "head", "outcome", "why"),
    [
        (
            Measured({"naive": 3}, {}, {"naive": "boom"}),
            measured(requests=Figure(1)),
            "inconclusive",
            "base cannot.*boom",
        ),
        (measured(requests=Figure(1)), Measured({"naive": 3}, {}, {"naive": "boom"}), "fail", "head cannot.*boom"),
        (Measured({"naive": 3}), measured(requests=Figure(1)), "inconclusive", "nothing was measured of base"),
        (measured(requests=Figure(1)), Measured({"naive": 3}), "inconclusive", "nothing was measured of head"),
        (
            Measured({"other": 1}, {"other": {"requests": Figure(1)}}),
            measured(requests=Figure(1)),
            "inconclusive",
            "no such",
        ),
        (Measured(failure="no module"), measured(requests=Figure(1)), "inconclusive", "base runs no.*no module"),
        (measured(requests=Figure(1)), Measured(failure="no module"), "fail", "head runs no.*no module"),
        (Measured(), Measured(), "inconclusive", "runs no scenario"),
        (measured(makespan=Figure(1)), measured(requests=Figure(1)), "inconclusive", "no such figure"),
    ],
)
def test_what_was_not_measured_never_passes(base, head, outcome, why):
    findings = compare_exact(base, head)
    assert {finding.outcome for finding in findings} == {outcome}
    assert any(re.search(why, finding.why) for finding in findings)


def test_nothing_at_all_is_inconclusive():
    assert verdict([]) == "inconclusive"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(["pass", "pass"], 0), (["pass", "inconclusive"], 2), (["inconclusive", "fail", "pass"], 1)],
)
def test_a_failure_goes_before_a_doubt_and_a_doubt_before_a_pass(outcomes, code):
    assert EXIT_CODES[verdict(a_finding(outcome) for outcome in outcomes)] == code


def test_on_a_real_clock_only_what_fails_every_time_fails():
    failed = a_finding("fail", base=60, head=59)
    assert agreed(failed, a_finding("pass", base=60, head=60)).outcome == "pass"
    assert agreed(failed, a_finding("inconclusive")).outcome == "inconclusive"
    assert agreed(failed, a_finding("fail")).outcome == "fail"


def a_finding(outcome, tier="exact", base=1, head=1, **fields) -> Finding:
    return Finding(tier, "naive", 1, "requests", outcome, base, head, **fields)


# The instruction tier


def counted(*slopes: float, failed: bool = False) -> Measured:
    """As if valgrind had counted so many instructions a sample, each time that it counted."""
    played: list[dict] = [{"plan": {"naive": 3}}]
    counts = {}
    for time, slope in enumerate(slopes):
        for n in (16, 48):
            counts[len(counts)] = 1_000_000 + n * slope
            played.append({"scenario": "naive", "n": n, "time": time, "process": len(counts) - 1, "failed": failed})
    return instructions.slopes(played, counts.get)


@pytest.mark.parametrize(("growth", "outcome"), [(0.98, "pass"), (1.0, "pass"), (1.019, "pass"), (1.021, "fail")])
def test_two_per_cent_more_instructions_fail(growth, outcome):
    (finding,) = instructions.compare(counted(1000.0, 1001.0), counted(1000.0 * growth, 1001.0 * growth))
    assert finding.outcome == outcome
    assert finding.base == 1000.0


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (counted(1000.0, 1100.0), "differ by 10"),
        (counted(1000.0, failed=True), "not every sample"),
        (counted(), "no count"),
        (Measured({"naive": 3}), "nothing was counted of head"),
        (Measured(failure="its process ended with code 1"), "code 1"),
    ],
)
def test_a_count_that_is_none_is_inconclusive(head, why):
    (finding,) = instructions.compare(counted(1000.0), head)
    assert finding.outcome == "inconclusive"
    assert why in finding.why


# The paired tier


#: Makespans of `paired-saturated`, recorded on two cores that eight processes wanted: a revision against itself, and
#: against one that waits 100 µs in every request.
RECORDED = [
    (0.1243, 0.2702), (0.127, 0.2882), (0.2325, 0.3029), (0.3058, 0.3652), (0.3429, 0.261), (0.2363, 0.2707),
    (0.3054, 0.2632), (0.3259, 0.289), (0.3183, 0.3235), (0.1426, 0.2931), (0.1303, 0.3066), (0.4853, 0.2571),
    (0.2541, 0.2853), (0.2631, 0.2608), (0.2112, 0.3134), (0.4077, 0.3459), (1.1841, 0.731), (0.2553, 0.3934),
    (0.3036, 0.9887), (0.8173, 0.3332), (0.3659, 0.3117), (1.0152, 0.3184), (1.2116, 0.2336), (0.2157, 0.5114),
    (0.6791, 0.2121), (0.4387, 0.2101), (0.1876, 0.1663), (0.1611, 0.2197), (0.6021, 0.3633), (0.715, 0.1912),
]  # fmt: skip
RECORDED_BLOCKING = [
    (0.4435, 0.8398), (0.4311, 0.7646), (0.5761, 0.8407), (0.3758, 0.9114), (0.4702, 0.9239), (0.2966, 0.8964),
    (0.3612, 1.0263), (0.431, 1.0858), (0.4058, 1.0734), (0.238, 0.857), (0.3085, 0.8753), (0.3703, 0.9102),
    (0.4593, 0.8104), (0.1286, 0.9436), (0.12, 0.7098), (0.4936, 0.922), (0.5713, 0.8509), (0.2152, 0.9827),
    (0.5234, 0.6264), (0.6818, 0.7683), (0.4239, 0.875), (0.5824, 0.7306), (0.1342, 0.4972), (0.1303, 0.6927),
    (0.1261, 0.6334), (0.402, 0.6106), (0.2897, 0.5201), (0.4678, 0.7016), (0.1811, 0.8589), (0.133, 0.6993),
]  # fmt: skip


def test_recorded_pairs_of_one_revision_raise_no_alarm_and_those_of_a_blocked_loop_do():
    half, other_half = RECORDED[::2], RECORDED[1::2]
    assert paired.judge("paired-saturated", "makespan", half, other_half).outcome != "fail"
    half, other_half = RECORDED_BLOCKING[::2], RECORDED_BLOCKING[1::2]
    assert paired.judge("paired-saturated", "makespan", half, other_half).outcome == "fail"


def noisy_pairs(ratio: float, noise: float = 0.1, count: int = 30, seed: int = 1) -> list[tuple[float, float]]:
    """The machine is slower in some pairs than in others, which both sides feel; and each side has noise of its own."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        machine = 0.3 * draw.lognormvariate(0, 0.4)
        pairs.append((machine * draw.lognormvariate(0, noise), ratio * machine * draw.lognormvariate(0, noise)))
    return pairs


def test_a_ratio_lies_where_its_pairs_do_and_is_the_same_every_time():
    ratio = ratio_of(noisy_pairs(1.1))
    assert ratio.low < 1.1 < ratio.high
    assert ratio == ratio_of(noisy_pairs(1.1))


def test_ten_per_cent_are_seen_through_a_machine_that_is_four_times_as_slow_now_and_then():
    assert paired.judge("saturated", "CPU", noisy_pairs(1.1, 0.05), noisy_pairs(1.1, 0.05, seed=2)).outcome == "fail"


def test_a_revision_against_itself_raises_no_alarm():
    """Both rounds would have to err: of two hundred, none does."""
    alarms = [
        paired.judge("saturated", "CPU", noisy_pairs(1.0, seed=seed), noisy_pairs(1.0, seed=1000 + seed)).outcome
        for seed in range(200)
    ]
    assert "fail" not in alarms


@pytest.mark.parametrize(
    ("ratio", "is_suspect"),
    [
        (Ratio(1.06, 1.01, 1.1), True),
        (Ratio(1.06, 0.99, 1.1), False),  # not surely
        (Ratio(1.04, 1.01, 1.1), False),  # not by enough
    ],
)
def test_suspect_is_what_is_surely_slower_and_by_five_per_cent(ratio, is_suspect):
    assert ratio.is_suspect is is_suspect


def test_rounds_that_are_no_pairs_are_compared_by_their_medians():
    ratio = ratio_of_rounds([1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.8, 2.0, 2.1])
    assert ratio.median == 2.0
    assert 1.0 < ratio.low < 2.0 < ratio.high
    assert ratio == ratio_of_rounds([1.0, 1.1, 0.9, 1.0, 1.05], [2.0, 2.2, 1.8, 2.0, 2.1])


@pytest.mark.parametrize(("limit", "is_suspect"), [(1.05, True), (1.5, True), (3.0, False)])
def test_a_limit_of_its_own_says_from_where_on_a_ratio_counts(limit, is_suspect):
    assert ratio_of_rounds([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], limit).is_suspect is is_suspect


@pytest.mark.parametrize(("base", "head"), [([], [1.0]), ([1.0], []), ([0.0, 1.0], [1.0])])
def test_no_ratio_without_rounds_or_over_nothing(base, head):
    with pytest.raises(ValueError, match="no ratio"):
        ratio_of_rounds(base, head)


def test_a_suspect_that_is_not_confirmed_passes():
    finding = paired.judge("saturated", "CPU", noisy_pairs(1.2, 0.02), noisy_pairs(1.0, 0.02))
    assert finding.outcome == "pass"
    assert finding.why.startswith("not confirmed")


def test_a_suspect_that_nobody_measured_again_is_inconclusive():
    assert paired.judge("saturated", "CPU", noisy_pairs(1.2, 0.02)).outcome == "inconclusive"


def test_pairs_too_noisy_to_tell_are_inconclusive():
    assert paired.judge("saturated", "CPU", noisy_pairs(1.0, 1.5, count=8)).outcome == "inconclusive"


def test_what_takes_less_than_five_milliseconds_is_not_gated():
    finding = paired.judge("beside judging", "blocked", [(0.001, 0.004)] * 30)
    assert (finding.outcome, "below 5 ms" in finding.why) == ("pass", True)


def test_a_control_that_moves_makes_everything_else_inconclusive():
    for ratio in (1.2, 1 / 1.2):
        control = paired.judge(paired.CONTROL, "CPU", noisy_pairs(ratio, 0.02))
        slower = paired.judge("saturated", "CPU", noisy_pairs(1.3, 0.02), noisy_pairs(1.3, 0.02))
        assert {finding.outcome for finding in paired.doubted([control, slower])} == {"inconclusive"}


# The report


def report(*findings: Finding, tiers=("exact",)) -> Report:
    return Report("main (aaaa)", "the working tree", tiers, findings)


def test_only_what_moved_is_shown_unless_all_is_asked_for():
    moved, still = a_finding("pass", base=2, head=1), a_finding("pass")
    assert len(report(moved, still).shown(False)) == 1
    assert len(report(moved, still).shown(True)) == 2


@pytest.mark.parametrize(("tier", "head", "is_shown"), [("instructions", 1004, False), ("instructions", 990, True)])
def test_what_is_counted_has_not_moved_within_its_own_noise(tier, head, is_shown):
    assert a_finding("pass", tier, base=1000, head=head).has_moved is is_shown


def test_failures_stand_first():
    told = list(report(a_finding("pass", head=0), a_finding("inconclusive"), a_finding("fail")).terminal())
    assert [line.split()[0] for line in told[2:5]] == ["fail", "inconclusive", "pass"]
    assert told[-1] == "fail"


def test_a_tier_that_found_nothing_is_no_pass():
    assert report(a_finding("pass"), tiers=("exact", "instructions")).verdict == "inconclusive"
    assert "instructions: nothing was measured" in list(
        report(a_finding("pass"), tiers=("exact", "instructions")).terminal()
    )


def test_advice_decides_nothing():
    advised = Report("a", "b", ("exact", "history"), [a_finding("pass")], ["naive stepped up"])
    assert advised.verdict == "pass"
    assert "history, advice only: naive stepped up" in list(advised.terminal())


def test_json_says_everything_and_markdown_what_moved():
    findings = a_finding("fail", base="a|b", head="c"), a_finding("pass")
    document = json.loads(report(*findings).json())
    assert (document["verdict"], len(document["findings"])) == ("fail", 2)
    assert document["findings"][0]["scenario"] == "naive"
    written = report(*findings).markdown()
    assert "a\\|b" in written
    assert written.count("| naive |") == 1

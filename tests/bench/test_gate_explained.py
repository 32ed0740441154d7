"""What a commit's `Explains:` excuses: the figure that it names, and of the pace's figures two points at most."""

from __future__ import annotations

import pytest

from bench.gate.findings import Figure, Finding, Measured, compare_exact


def found(scenario: str, before: Figure, after: Figure, metric: str = "makespan", **explained: str) -> Finding:
    """`explained` names the figure by its words, joined with underscores."""
    base, head = (Measured({scenario: 1}, {scenario: {metric: figure}}) for figure in (before, after))
    (finding,) = compare_exact(base, head, {figure.replace("_", " "): why for figure, why in explained.items()})
    return finding


@pytest.mark.parametrize("figure", ["respx/sync/16_requests", "respx/*_requests", "*_requests"])
def test_a_worsening_passes_where_a_commit_names_the_figure_and_why(figure):
    excused = found("respx/sync/16", Figure(16), Figure(170), "requests", **{figure: "one more is safer"})
    assert (excused.outcome, excused.why) == ("pass", "explained: one more is safer")


@pytest.mark.parametrize("figure", ["respx/sync/32_requests", "respx/sync/16_retries", "wire-*_requests", "respx/*"])
def test_another_figures_explanation_excuses_nothing(figure):
    assert found("respx/sync/16", Figure(16), Figure(17), "requests", **{figure: "safer"}).outcome == "fail"


def test_a_metric_alone_is_no_figure_and_the_gate_says_what_is():
    """It would excuse whatever became worse by that name, in every scenario."""
    finding = found("respx/sync/16", Figure(16), Figure(17), "requests", requests="one more is safer")
    assert finding.outcome == "fail"
    assert finding.why.endswith("name the scenario too: respx/sync/16 requests")


@pytest.mark.parametrize("figure", ["verdict_digest", "respx/*_verdict_digest"])
def test_what_is_neither_better_nor_worse_is_named_with_or_without_its_scenarios(figure):
    one, other = Figure("aa", "", "equal"), Figure("bb", "", "equal")
    assert found("respx/sync/16", one, other, "verdict digest", **{figure: "fractions are read"}).outcome == "pass"


@pytest.mark.parametrize(
    ("scenario", "unit", "direction", "before", "after", "outcome"),
    [
        ("profile-tiny", "virtual s", "lower", 100.0, 102.0, "pass"),
        ("profile-tiny", "virtual s", "lower", 100.0, 102.1, "fail"),
        ("refused-crowd", "requests", "lower", 300, 306, "pass"),
        ("refused-crowd", "requests", "lower", 300, 307, "fail"),
        ("profile-tiny", "of the own pace", "higher", 0.9, 0.882, "pass"),
        ("profile-tiny", "of the own pace", "higher", 0.9, 0.88, "fail"),
        ("profile-tiny", "of the requests", "lower", 0.014, 0.034, "pass"),  # a share: percentage points
        ("profile-tiny", "of the requests", "lower", 0.014, 0.035, "fail"),
        ("profile-tiny", "samples", "lower", 0, 1, "fail"),  # two points of nothing: a lost sample has no excuse
        ("uneven-lognormal", "virtual s", "lower", 100.0, 150.0, "pass"),  # not the pace's
    ],
)
def test_a_figure_of_the_pace_is_excused_by_two_points_at_most(scenario, unit, direction, before, after, outcome):
    figures = Figure(before, unit, direction), Figure(after, unit, direction)
    assert found(scenario, *figures).outcome == "fail"
    excused = found(scenario, *figures, **{f"{scenario}_makespan": "a simpler pace"})
    assert (excused.outcome, "a simpler pace" in excused.why) == (outcome, True)


def test_a_figure_that_became_better_needs_no_explanation():
    assert found("profile-tiny", Figure(100.0), Figure(50.0), **{"profile-*_makespan": "simpler"}).why == "better"

"""What a group of responses shares, and that the harness sees it when it shares less."""

from __future__ import annotations

import json

import pytest

from bench import prefix_cache, prefix_share
from bench.prefix_share import SHARED, share, token_first
from bench.scenarios import PREFIXES, groups_of
from rewardcore import Sample, rubrics
from rewardcore.rubrics import TemplateRubric
from tests.bench.test_reporting import bench_session

every_prefix = pytest.mark.parametrize("scenario", PREFIXES, ids=[scenario.id for scenario in PREFIXES])


@every_prefix
def test_a_group_shares_what_stands_before_its_responses(scenario):
    assert prefix_share.measure(scenario) >= SHARED


@every_prefix
def test_a_token_in_the_first_line_is_seen(scenario):
    rubric = token_first(rubrics.BY_NAME[scenario.id.removeprefix("prefix-")])
    assert share(rubric, groups_of(scenario)) < 0.15


def test_every_rubric_of_ours_is_measured():
    assert [scenario.id for scenario in PREFIXES] == [f"prefix-{name}" for name in rubrics.BY_NAME]


@pytest.mark.parametrize(
    ("template", "expected"),
    [("one two {prompt} four {response}", 1.0), ("one two {data_source} four {response}", 0.5)],
)
def test_the_share_is_counted_in_words_and_what_responses_begin_with_alike_is_none_of_it(template, expected):
    group = [Sample("p", f"alike {letter}", data_source=letter) for letter in "abcdefgh"]
    assert share(TemplateRubric("mine", template + " <score>"), [group, group]) == expected


def test_groups_are_the_same_every_time_and_no_two_begin_alike():
    groups = groups_of(PREFIXES[0])
    assert groups == groups_of(PREFIXES[0])
    assert [len(group) for group in groups] == [8] * 32
    assert len({group[0].prompt[:8] for group in groups}) == 32
    assert all(len({sample.prompt for sample in group}) == 1 for group in groups)
    assert len({sample.response for group in groups for sample in group}) == 256
    assert all(40 <= len(group[0].prompt.split()) <= 401 for group in groups)


def test_a_session_leaves_the_share_in_the_summary_and_the_records(tmp_path):
    path = tmp_path / "records.jsonl"
    done = bench_session("-k", "prefix-quality", f"--records={path}")
    assert done.returncode == 0, done.stdout
    assert "prefix-quality        100.0%" in done.stdout[done.stdout.index("── prefix share") :]
    (found,) = map(json.loads, path.read_text().splitlines())
    assert (found["metric"], found["value"], found["direction"]) == ("prefix share", 1.0, "higher")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--words", "9"], "--words takes a whole number of 10 or more, not 9"), (["--words", "x"], "invalid int value")],
)
def test_a_wrong_flag_of_the_proof_on_a_server_is_named(arguments, says, capsys):
    with pytest.raises(SystemExit, match="2"):
        prefix_cache.main(["--base-url", "http://127.0.0.1:1/v1", "--model", "judge", *arguments])
    assert says in capsys.readouterr().err


def test_a_server_without_counters_is_named_before_anything_is_judged(capsys, judge_server):
    assert prefix_cache.main(["--base-url", judge_server.base_url, "--model", "judge"]) == 1
    assert judge_server.stats().requests == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bench.prefix_cache: --base-url: http://127.0.0.1:")
    assert "/metrics cannot be read, as vLLM's can: " in line

"""A night from beginning to end, with parts that need no model: what is kept in any case, and what people are told."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import records
from bench.harness import ROOT
from bench.nightly import __main__ as command
from bench.nightly import history
from bench.nightly.night import Night
from bench.nightly.parts import Order, PartFailed, child_part, parts_of
from bench.scenarios import REGISTRY, SIZES
from tests.bench.nights import (
    BATCHED,
    MEMORY,
    PARTS,
    SERVED,
    a_night,
    a_part,
    a_plan,
    control,
    died,
    keep,
    made_up,
    run,
)

SLOPE = (MEMORY, "counted peak, slope")
SPEED = (BATCHED, "samples a second")
DIGEST = (BATCHED, "verdict digest")


def told(directory: Path, night: Night, since: Night | None) -> tuple[str, str | None]:
    """summary.md and issue.md, as they are written."""
    command.write(night, since, directory)
    issue = directory / "issue.md"
    return (directory / "summary.md").read_text(), issue.read_text() if issue.exists() else None


def test_the_first_night_is_clean_and_has_nothing_to_compare_with(tmp_path):
    night, since = run(a_plan(tmp_path))
    summary, issue = told(tmp_path, night, since)
    assert (night.exit_code, since, issue) == (0, None, None)
    assert summary.splitlines()[0] == "# ✅ Clean; there is no clean night before it to compare with"
    assert {record.commit for record in night.records} == {"9" * 40}


def test_a_night_like_the_last_clean_one_is_unchanged(tmp_path):
    keep(tmp_path, a_night(1))
    night, since = run(a_plan(tmp_path))
    summary, issue = told(tmp_path, night, since)
    assert (night.exit_code, issue) == (0, None)
    assert summary.startswith("# ✅ Clean, and nothing is worse since 2026-10-01 02:00 (111111111111)\n")
    assert "- 12 figures compared: all as they were, within their limits" in summary
    assert (
        "any worsening of what is exact; else 1.05 × the time, 1.1 × through vLLM, 1.05 × of whatever else" in summary
    )


@pytest.mark.parametrize(
    ("part", "figure", "change", "change_told", "said"),
    [
        ("torch", SLOPE, 2.0, "+100.0%", "1.34 MiB/sample → 2.67 MiB/sample (+100.0%)"),
        ("torch", DIGEST, "bbbb", "changed", "aaaa → bbbb"),
        ("torch", SPEED, 0.5, "-50.0%", "40 1/s → 20 1/s (-50.0%)"),
        ("http", (SERVED, "makespan"), 1.3, "+30.0%", "1 s → 1.3 s (+30.0%)"),
        ("vllm", ("nightly-engine", "KV blocks"), 0.5, "-50.0%", "16,384 blocks → 8,192 blocks (-50.0%)"),
    ],
)
def test_a_planted_change_that_comes_twice_is_told_in_the_first_lines_and_as_an_issue(
    tmp_path, part, figure, change, change_told, said
):
    keep(tmp_path, a_night(1))
    night, since = run(a_plan(tmp_path, 9, a_part(part, [{figure: change}])))
    summary, issue = told(tmp_path, night, since)
    assert (night.exit_code, night.is_clean) == (1, True)
    assert summary.splitlines()[0] == "# ❌ Changed: 1 figure is worse since 2026-10-01 02:00 (111111111111)"
    assert f"- **{figure[0]}, {figure[1]}**: {said}" in summary.splitlines()[:6]
    title, empty, *body = issue.splitlines()
    assert title == f"Nightly: {figure[0]}, {figure[1]} {change_told} on NVIDIA A10"
    assert (empty, body[0]) == ("", "1 figure is worse since 2026-10-01 02:00 (111111111111).")
    assert any(line.startswith(f"| worse | {figure[0]} | {figure[1]} |") for line in body)
    assert "git log --oneline 111111111111..999999999999" in body


def test_a_change_that_does_not_come_again_is_no_change_and_the_second_time_is_kept(tmp_path):
    """Else the next night would be held against the slower one, and a real change be hidden."""
    keep(tmp_path, a_night(1))
    night, since = run(a_plan(tmp_path, 9, a_part("torch", [{SPEED: 0.5}, {}])))
    summary, issue = told(tmp_path, night, since)
    assert (night.exit_code, issue) == (0, None)
    assert "| not confirmed | torch/self-8/16 | samples a second | 40 1/s | 40 1/s | 2.000 × (" in summary
    values = [each.value for each in night.records if each.metric.startswith("samples a second")]
    assert max(values) > 39
    assert len(values) == 5


def test_what_is_measured_again_is_measured_with_what_stands_beside_it(tmp_path):
    keep(tmp_path, a_night(1))
    asked = []
    part = a_part("http", [{(SERVED, "makespan"): 2.0}])
    asking = replace(part, measure=lambda ids, hear: (asked.append(list(ids)), part.measure(ids, hear)))
    run(a_plan(tmp_path, 9, asking))
    assert asked == [["vllm/sync/16", SERVED]] * 2


def test_a_change_whose_part_dies_the_second_time_is_doubtful_and_the_night_is_dirty(tmp_path):
    keep(tmp_path, a_night(1))
    night, since = run(a_plan(tmp_path, 9, a_part("torch", [{SPEED: 0.5}, died()])))
    assert night.exit_code == 2
    assert [each.outcome for each in night.findings if each.outcome != "pass"] == ["inconclusive"]
    assert "torch, measured again failed" in told(tmp_path, night, since)[0].splitlines()[0]


def test_a_part_that_dies_costs_no_other_its_figures_and_makes_the_night_dirty(tmp_path):
    keep(tmp_path, a_night(1))
    night, since = run(a_plan(tmp_path, 9, a_part("torch", [died(said=["Traceback", "CUDA out of memory"])])))
    summary, issue = told(tmp_path, night, since)
    assert (night.exit_code, issue) == (2, None)
    assert summary.startswith("# ❔ Dirty, and no baseline: torch failed: its process ended with code -9: Killed\n")
    assert "The last words of torch:\n\n```\nTraceback\nCUDA out of memory\n```" in summary
    measured = {each.scenario for each in night.records}
    assert measured >= {*PARTS["http"], *PARTS["vllm"], BATCHED}  # and what it told before it died
    assert records.read(tmp_path / "records.jsonl") == list(night.records)
    assert json.loads((tmp_path / "night.json").read_text())["clean"] is False


def test_an_exact_change_is_told_in_a_dirty_night_too(tmp_path):
    keep(tmp_path, a_night(1))
    parts = (a_part("http", [died()]), a_part("torch", [{SLOPE: 2.0}]))
    night, since = run(a_plan(tmp_path, 9, *parts))
    summary, issue = told(tmp_path, night, since)
    assert night.exit_code == 1
    assert summary.startswith("# ❔ Dirty, and no baseline: http failed")
    assert "; and 1 figure is worse since" in summary.splitlines()[0]
    assert "The night was dirty, so that it is no baseline" in issue


def test_the_night_after_a_dirty_night_is_held_against_the_last_clean_one(tmp_path):
    keep(tmp_path, a_night(1))
    dirty, _ = run(a_plan(tmp_path, 2, a_part("http", [died()]), a_part("torch", [{SPEED: 0.5}])))
    history.keep(dirty, tmp_path / "history")
    night, since = run(a_plan(tmp_path, 3, a_part("torch", [{SPEED: 0.5}])))
    assert since.when == a_night(1).when
    assert [(each.scenario, each.metric) for each in night.changed] == [SPEED]


def test_a_part_that_cannot_be_measured_here_makes_the_night_partial_by_name(tmp_path):
    missing = a_part("http", missing="vLLM is not installed")
    night, since = run(a_plan(tmp_path, 9, missing))
    summary, _ = told(tmp_path, night, since)
    assert night.exit_code == 2
    assert summary.startswith("# ❔ Dirty, and no baseline: http was not measured: vLLM is not installed\n")
    assert "Not measured: vLLM is not installed." in summary


def test_a_part_that_is_left_out_on_purpose_is_no_dirt_and_is_said(tmp_path):
    plan = a_plan(tmp_path)
    parts = [part for part in plan.parts if part.name != "vllm"]
    night, since = run(replace(plan, parts=parts, night=replace(plan.night, left_out=["vllm"])))
    summary, _ = told(tmp_path, night, since)
    assert night.exit_code == 0
    assert "- left out on purpose: vllm" in summary
    assert "## vLLM's offline engine\n\nNot measured: left out on purpose." in summary


def test_a_scenario_that_failed_or_was_never_told_makes_the_night_dirty(tmp_path):
    def measure(ids, hear):
        hear({"failed": BATCHED, "why": "UnequalWork: it scores the same samples differently in another round"})

    night, _ = run(a_plan(tmp_path, 9, replace(a_part("torch"), measure=measure)))
    assert list(night.why_not) == [
        f"{BATCHED} failed: UnequalWork: it scores the same samples differently in another round",
        f"{MEMORY} failed: nothing was told of it",
    ]


def test_where_the_control_moved_no_time_is_believed_and_what_is_exact_is(tmp_path):
    keep(tmp_path, a_night(1))
    slower = {("nightly-control", "matrix products"): 1.4}
    controls = [control(slower), control(slower, first=6)]
    plan = a_plan(tmp_path, 9, a_part("torch", [{SPEED: 0.7, SLOPE: 2.0}]), control=controls)
    night, since = run(plan)
    assert [(each.scenario, each.metric) for each in night.changed] == [SLOPE]
    doubtful = [each for each in night.findings if each.outcome == "inconclusive"]
    assert [(each.scenario, each.metric) for each in doubtful] == [SPEED]
    assert "the control moved since 2026-10-01" in told(tmp_path, night, since)[0].splitlines()[0]


def test_without_a_control_nothing_is_measured_and_that_is_said(tmp_path):
    def measure(ids, hear):
        raise PartFailed("RuntimeError: --device cuda, but torch sees no CUDA GPU")

    night, since = run(a_plan(tmp_path, 9, control=[replace(control(), measure=measure), control()]))
    assert night.exit_code == 2
    assert night.records == []
    assert "control failed: RuntimeError: --device cuda" in told(tmp_path, night, since)[0].splitlines()[0]


def test_of_many_changes_the_worst_come_first_and_the_rest_below(tmp_path):
    keep(tmp_path, a_night(1))
    worse = {figure: "bbbb" if figure == DIGEST else 3.0 for figure in (DIGEST, SLOPE, (BATCHED, "requests"))}
    slower = {SPEED: 0.5, (MEMORY, "CUDA peak allocated, batch 8"): 1.2, (SERVED, "makespan"): 1.3}
    parts = [a_part(name, [worse | slower]) for name in ("http", "torch")]
    summary, issue = told(tmp_path, *run(a_plan(tmp_path, 9, *parts)))
    first = summary.splitlines()[4:10]
    assert first[0] == f"- **{BATCHED}, verdict digest**: aaaa → bbbb"
    assert first[4].startswith(f"- **{SERVED}, makespan**")
    assert first[5] == "- and 1 more, below"
    assert issue.splitlines()[0] == f"Nightly: {BATCHED}, verdict digest changed and 5 more on NVIDIA A10"
    assert len([line for line in issue.splitlines() if line.startswith("| worse |")]) == 6


# The history


def test_a_night_is_read_as_it_was_written_under_a_name_that_sorts(tmp_path):
    night, _ = run(a_plan(tmp_path, 9, a_part("http", [died()])))
    path = history.keep(night, tmp_path / "history")
    assert path.name == "2026-10-09T020000Z-999999999999.json"
    (again,), problems = history.read(tmp_path / "history")
    assert (again.json(), problems) == (night.json(), [])
    document = json.loads(path.read_bytes())
    assert document["schema"] == 1
    assert document["device"] == {"kind": "cuda", "name": "NVIDIA A10"}
    assert {"commit", "when", "environment", "clean", "why_not", "records"} <= document.keys()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"schema": 1, "comm', "it is no JSON"),
        (b"", "it is no JSON"),
        (b"[1, 2]", "it is no night's document"),
        (b'{"schema": 99}', "it has schema 99, and this is 1"),
        (b'{"schema": 1, "when": "2026-10-05"}', "it lacks something"),
    ],
)
def test_a_file_of_the_history_that_is_no_night_is_told_and_passed_over(tmp_path, content, why):
    keep(tmp_path, a_night(1))
    (tmp_path / "history" / "2026-10-05T020000Z-5.json").write_bytes(content)
    night, since = run(a_plan(tmp_path))
    assert (night.exit_code, since.when) == (0, a_night(1).when)
    assert f"2026-10-05T020000Z-5.json in the history was passed over: {why}" in told(tmp_path, night, since)[0]


def test_a_night_that_somebody_has_called_dirty_by_hand_is_no_baseline(tmp_path):
    path = history.keep(a_night(1), tmp_path / "history")
    path.write_text(path.read_text().replace('"clean": true', '"clean": false'))
    assert run(a_plan(tmp_path))[1] is None


# The parts' own processes


def a_child(how: str, name: str = "torch"):
    order = Order(name, "cpu", model=how)
    return child_part(order, [REGISTRY[id] for id in PARTS[name]], module="tests.bench.nightly_child")


@pytest.mark.parametrize(
    ("how", "why", "said"),
    [
        ("dies", r"killed by SIGKILL: .*device-side assert.*; if nobody killed it, the machine", ["CUDA error"]),
        ("raises", "RuntimeError: boom", ["Traceback", "RuntimeError: boom"]),
    ],
)
def test_a_process_that_ends_early_is_told_with_its_code_and_its_last_words(how, why, said):
    heard = []
    with pytest.raises(PartFailed, match=why) as failure:
        a_child(how).measure(PARTS["torch"], heard.append)
    assert [len(message["records"]) for message in heard] == [1]
    assert all(any(word in line for line in failure.value.said) for word in said)


def test_a_process_that_ends_well_has_told_everything():
    heard = []
    a_child("").measure(PARTS["torch"], heard.append)
    assert {each["scenario"] for message in heard for each in message["records"]} == set(PARTS["torch"])


PROGRAM = """
import sys
from bench.nightly import __main__ as command
from tests.bench.nights import PARTS, a_part, control
from tests.bench.test_nightly import a_child
command.parts_of = lambda order, sizes: [a_part("http"), a_child("hangs"), a_part("vllm")]
command.control_part = lambda order: control(first=order.first_round)
if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
"""


def a_hanging_night(directory: Path) -> tuple[subprocess.Popen[str], int]:
    """Its process, when it is in the middle of a part; and the process that the part has started."""
    (directory / "program.py").write_text(PROGRAM)
    night = subprocess.Popen(
        [sys.executable, str(directory / "program.py"), "--device", "cpu", "--output", str(directory / "out")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert night.stderr is not None
    line = ""
    while "the server is" not in line:
        line = night.stderr.readline()
        assert line, "it ended before it hung"
    return night, int(line.split()[-1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_night_that_is_broken_off_ends_what_it_started_and_decides_nothing(tmp_path, number, code):
    night, server = a_hanging_night(tmp_path)
    with night:
        night.send_signal(number)
        assert night.wait(timeout=60) == code
        assert "broken off, nothing is decided; what was measured is in" in night.stderr.read()
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert summary.startswith("# ❔ Dirty, and no baseline: it was broken off before its end")
    assert "| 16 | asyncio |" in summary, "what was measured until then"
    assert not Path(f"/proc/{server}").exists()
    assert not (tmp_path / "out" / "night.json").exists()
    assert {record.scenario for record in records.read(tmp_path / "out" / "records.jsonl")} >= set(PARTS["http"])


def test_a_night_that_is_killed_leaves_its_records_no_half_document_and_no_process(tmp_path):
    keep(tmp_path / "out", a_night(1))
    night, server = a_hanging_night(tmp_path)
    ending = os.pidfd_open(server)
    with night:
        night.kill()
        night.wait(timeout=60)
    assert select.select([ending], [], [], 60.0)[0], "the server outlives whoever started it"
    os.close(ending)
    assert [path.name for path in (tmp_path / "out" / "history").iterdir()] == [a_night(1).name]
    assert records.read(tmp_path / "out" / "records.jsonl")
    again, since = run(a_plan(tmp_path / "out"))
    assert (again.exit_code, since.when) == (0, a_night(1).when)


# The command


def test_every_part_has_every_size_that_was_asked_for():
    http, torch, vllm = parts_of(Order("", "cpu"), SIZES)
    assert {(each.mode, each.n) for each in http.scenarios} == {
        (mode, n) for mode in ("sync", "process", "asyncio", "asyncio-httpx") for n in SIZES
    }
    assert {(each.batch_size, each.n) for each in torch.scenarios} == {(size, 100) for size in (1, 2, 4, 8, 16)} | {
        (8, 1024)
    }
    assert [each.n for each in vllm.scenarios] == [0, *SIZES]
    assert [each.n for each in parts_of(Order("", "cpu"), (16, 32))[1].scenarios] == [32] * 5 + [1024]


def the_command(monkeypatch, directory: Path, *arguments: str, parts=()) -> int:
    given = {part.name: part for part in parts}
    monkeypatch.setattr(command, "parts_of", lambda order, sizes: [given.get(name, a_part(name)) for name in PARTS])
    monkeypatch.setattr(command, "control_part", lambda order: control(first=order.first_round))
    return command.main(["--device", "cpu", "--output", str(directory / "out"), *arguments])


def test_two_nights_in_a_row_are_compared_and_a_third_that_is_slower_ends_with_1(tmp_path, monkeypatch, capsys):
    when = iter(["2026-10-01T02:00:00Z", "2026-10-02T02:00:00Z", "2026-10-03T02:00:00Z", "2026-10-04T02:00:00Z"])
    monkeypatch.setattr(command, "now", lambda: next(when))
    slower = a_part("torch", [{SLOPE: 2.0}])
    assert the_command(monkeypatch, tmp_path) == 0
    assert the_command(monkeypatch, tmp_path) == 0
    assert the_command(monkeypatch, tmp_path, parts=[slower]) == 1
    out, _ = capsys.readouterr()
    first, second, third = out.splitlines()
    assert "no clean night before it" in first
    assert "nothing is worse since 2026-10-01" in second
    assert "1 figure is worse since 2026-10-02" in third
    assert (tmp_path / "out" / "issue.md").exists()
    assert the_command(monkeypatch, tmp_path, parts=[slower]) == 0  # the changed night was clean: it is the baseline
    assert not (tmp_path / "out" / "issue.md").exists(), "of another night"
    assert len(list((tmp_path / "out" / "history").glob("*.json"))) == 4


def test_the_cap_on_requests_is_told_before_anything_is_asked(tmp_path, monkeypatch, capsys):
    the_command(monkeypatch, tmp_path, "--sizes", "16,32", "--rounds", "3")
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert "http: never more than 752 requests to the served judge" in first
    assert "control begins" in second


def test_a_part_left_out_is_not_even_asked(tmp_path, monkeypatch):
    def never(ids, hear):
        raise AssertionError("it was left out")

    dead = [replace(a_part(name), measure=never) for name in ("http", "vllm")]
    assert the_command(monkeypatch, tmp_path, "--without", "vllm", "--without", "http", parts=dead) == 0
    assert json.loads((tmp_path / "out" / "night.json").read_bytes())["left_out"] == ["vllm", "http"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--device"),
        (("--device", "tpu"), "invalid choice"),
        (("--device", "cpu", "--sizes", "17"), "name some of 16, 32, 100, 1024, with commas between"),
        (("--device", "cpu", "--rounds", "2"), "fewer than 3 rounds say nothing"),
        (("--device", "cpu", "--without", "numpy"), "invalid choice"),
        (("--device", "cpu", "--model", "/nowhere"), "has no config.json"),
        (("--device", "cpu", "--max-tokens", "0"), "whole number above 0"),
        (("--device", "cpu", "--gpu-memory-utilization", "80"), "a share above 0 and at most 1, as 0.8"),
    ],
)
def test_a_wrong_flag_is_one_sentence_with_2(capsys, arguments, sentence):
    with pytest.raises(SystemExit) as ended:
        command.main(list(arguments))
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_directory_that_cannot_be_written_is_one_sentence_with_2(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert command.main(["--device", "cpu", "--output", str(tmp_path / "file" / "out")]) == 2
    assert capsys.readouterr().err.startswith("bench.nightly: ")


def test_where_neither_torch_nor_vllm_is_installed_all_of_it_is_told_by_name(tmp_path):
    """The real command, in an environment without them."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.nightly", "--device", "cpu", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2, done.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith(
        "# ❔ Dirty, and no baseline: control failed: ModuleNotFoundError: No module named 'torch'"
    )
    assert "- http: vLLM is not installed" in summary
    assert "- torch: torch is not installed" in summary
    assert "Traceback" not in done.stderr


def test_the_help_says_what_each_exit_code_means(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    told_help = " ".join(capsys.readouterr().out.split())
    assert "0 clean and nothing worse, 1 something is worse, 2 dirty or incomplete, or wrong usage" in told_help


def test_every_record_of_a_night_is_of_the_registry():
    assert {each.scenario for each in made_up()} <= REGISTRY.keys()

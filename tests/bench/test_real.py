"""A real endpoint: capped on the wire whatever it does, never taken for exact, and what was paid for is never lost."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket

import pytest

from bench import prefix_cache, sweep
from bench.agreement import LEGEND, Agreement, Measured
from bench.metered import CapReached, Meter, MeteredTransport
from bench.real import CHECK_REQUESTS, Budget, RealEndpoint, Size, plan
from bench.records import read
from bench.report.newest import Newest
from bench.report.tables.concurrency import own_sweeps
from bench.runner import Run
from bench.scenarios import BACKEND_MODES, REGISTRY, SIZES
from rewardcore import Endpoint, rubrics
from rewardcore.testing import Profile, SimulatedServer
from tests.bench.test_reporting import bench_session

SMALL = Size(16, 1)
MODES = BACKEND_MODES["real"]


def connect(
    server: SimulatedServer, max_requests: int = 100, rounds: int = 1, extra_body: dict | None = None, **options
) -> RealEndpoint:
    endpoint = dataclasses.replace(server.endpoint, max_tokens=64, extra_body=extra_body)
    return RealEndpoint.connect(endpoint, Budget(max_requests, rounds), **options)


@pytest.fixture
def two_modes(monkeypatch) -> None:
    """Without the process mode, whose workers take seconds to start and say nothing more here."""
    monkeypatch.setitem(BACKEND_MODES, "real", ("sync", "asyncio"))


def by_mode(endpoint: RealEndpoint, size: Size = SMALL) -> dict[str, Measured]:
    return {measured.scenario.mode: measured for measured in endpoint.measured(size)}


@pytest.mark.parametrize("cap", [71, 100, 500, 5000, 20000])
def test_every_size_that_is_planned_has_its_baseline_and_all_fits_below_the_cap(cap):
    sizes = plan(Budget(cap))
    assert CHECK_REQUESTS + sum(size.requests for size in sizes) <= cap
    assert [size.n for size in sizes] == list(SIZES[: len(sizes)])
    assert all("sync" in size.scenarios for size in sizes)
    assert all(1 <= size.rounds <= 3 for size in sizes)


def test_a_server_of_the_night_is_asked_in_four_modes_and_at_the_sizes_that_were_chosen():
    sizes = plan(Budget(1000, rounds=3, sizes=(16, 32), backend="vllm"))
    assert [(size.n, size.rounds) for size in sizes] == [(16, 3), (32, 3)]
    assert [scenario.id for scenario in sizes[0].scenarios.values()] == [
        f"vllm/{mode}/16" for mode in ("sync", "process", "asyncio", "asyncio-httpx")
    ]


def test_the_agreement_of_each_round_is_told_as_it_ends(judge_server, two_modes):
    told = []
    with connect(judge_server, max_requests=200, rounds=2) as endpoint:
        endpoint.measure(Size(16, 2), told.extend)
    agreed = {record.metric: record.value for record in told if record.metric.startswith("scores equal")}
    assert agreed == {"scores equal to sync's, round 1": 1.0, "scores equal to sync's, round 2": 1.0}


def test_a_cap_below_the_smallest_comparison_names_the_least():
    with (
        SimulatedServer() as server,
        pytest.raises(ValueError, match=r"--max-requests 70 is too few.*71 are the least"),
    ):
        connect(server, max_requests=70)


def test_the_estimate_is_what_an_endpoint_without_failures_is_sent(judge_server):
    with connect(judge_server, max_requests=300, rounds=2) as endpoint:
        for size in endpoint.sizes:
            endpoint.measure(size)
        told = f"{CHECK_REQUESTS + sum(size.requests for size in endpoint.sizes)} requests if none is asked again"
        assert told in endpoint.estimate()
        assert "left out to stay below that: n = 100, 1024" in endpoint.estimate()
        assert endpoint.meter.sent == int(told.split()[0])
    # The check's other request is for the list of models, which the server does not count.
    assert judge_server.stats().requests == endpoint.meter.sent - 1


def test_no_retry_slips_past_the_cap():
    """Of a server that fails half of the time: every attempt of every mode counts, and so does the check."""
    cap = CHECK_REQUESTS + SMALL.requests
    with SimulatedServer() as server:
        with connect(server, max_requests=cap) as endpoint:
            server.reset(error_fraction=0.5, error_status=500)
            endpoint.measure(SMALL)
            lines = endpoint.lines(endpoint.measured(SMALL))
        assert server.stats().requests <= cap - CHECK_REQUESTS
    assert endpoint.meter.sent <= cap
    assert f"stopped after {cap} requests: --max-requests {cap} was reached" in lines


def test_the_cap_holds_for_whoever_asks_at_the_same_moment():
    meter = Meter(cap=3, most_silence=60.0)
    meter.spend(2)
    with pytest.raises(CapReached, match="--max-requests 3 was reached"):
        meter.spend(2)
    meter.spend()
    assert meter.sent == 3


def test_the_order_of_modes_goes_round(judge_server, monkeypatch):
    order = []
    run = RealEndpoint._run
    monkeypatch.setattr(RealEndpoint, "_run", lambda self, *given: order.append(given[::2]) or run(self, *given))
    with connect(judge_server, max_requests=200, rounds=3) as endpoint:
        endpoint.measure(Size(16, 3))
    firsts = [mode for number in range(3) for mode, round in order[number * 3 : number * 3 + 1] if round == number]
    assert firsts == list(MODES)


def test_each_round_has_samples_that_the_server_has_not_seen(judge_server, two_modes):
    with connect(judge_server, max_requests=200, rounds=2) as endpoint:
        endpoint.measure(Size(16, 2))
        one, two = by_mode(endpoint, Size(16, 2))["sync"].runs
    assert one.digest != two.digest


def test_a_server_that_scores_differently_each_time_gets_a_speed_up_with_its_agreement_beside_it(two_modes):
    with SimulatedServer() as server, connect(server) as endpoint:
        server.when("Question 3:").scores(2, times=1).scores(9)  # whoever asks first, sync, is told something else
        endpoint.measure(SMALL)
        modes = by_mode(endpoint)
        lines, figures = endpoint.lines(list(modes.values())), endpoint.records(list(modes.values()))
    agreement = modes["asyncio"].agreement(modes["sync"])
    assert agreement == Agreement(16, 15 / 16, pytest.approx(7 / 9 / 16))
    (row,) = [line for line in lines if line.startswith("asyncio")]
    assert "×" in row
    assert "94% of 16 equal, ±0.05" in row
    metrics = {figure.metric for figure in figures if figure.mode == "asyncio"}
    assert {"speed-up over sync", "scores equal to sync's", "mean difference to sync's scores"} <= metrics


def test_a_server_that_answers_garbage_is_reported_by_status_and_nothing_is_raised(two_modes):
    with SimulatedServer() as server, connect(server) as endpoint:
        server.when("Question").says("no score at all")
        endpoint.measure(SMALL)
        measured = endpoint.measured(SMALL)
        lines, figures = endpoint.lines(measured), endpoint.records(measured)
    assert all("16 unparsed" in line for line in lines if line.startswith(MODES))
    assert not any("×" in line for line in lines)  # nothing to agree on, so no speed-up either
    assert {figure.value for figure in figures if figure.metric == "verdicts unparsed"} == {16}
    assert not any(figure.metric.startswith("speed-up") for figure in figures)


def test_a_server_that_dies_in_the_middle_ends_the_run_and_what_came_before_is_kept(monkeypatch):
    told, send = [], MeteredTransport.send
    with SimulatedServer() as server, connect(server, max_requests=200, most_silence=0.5) as endpoint:

        async def send_until_it_dies(self, body):
            if endpoint.meter.sent == CHECK_REQUESTS + SMALL.requests - 20:  # in the second mode
                os.kill(server.process_id, signal.SIGKILL)
            return await send(self, body)

        monkeypatch.setattr(MeteredTransport, "send", send_until_it_dies)
        endpoint.measure(SMALL, told.append)
        measured = endpoint.measured(SMALL)
        lines = endpoint.lines(measured)
    modes = {each.scenario.mode: each for each in measured}
    assert modes["sync"].statuses == {"ok": 16}
    assert modes["process"].statuses["failed"] > 0
    assert "asyncio" not in modes  # it was not even tried
    assert any("no reply came for 0.5 s" in line for line in lines)
    assert any("did not get every reply: its time is no speed-up" in line for line in lines)
    assert {record.scenario for records in told for record in records} >= {"real/sync/16"}


def test_no_speed_up_where_a_mode_did_not_get_its_replies():
    whole = Run(REGISTRY["real/sync/16"], 8.0, 8.0, 16, 0, 0, 0, None, {"ok": 16}, "", scores=(0.5,) * 16)
    cut = dataclasses.replace(whole, seconds=1.0, statuses={"ok": 15, "timeout": 1})
    sync, quick = Measured(whole.scenario, (whole,)), Measured(REGISTRY["real/asyncio/16"], (cut,))
    assert quick.speed_up(sync) is None
    unparsed = dataclasses.replace(cut, statuses={"ok": 15, "unparsed": 1})
    assert Measured(quick.scenario, (unparsed,)).speed_up(sync) == 8.0


@pytest.mark.parametrize(("n", "name"), [(16, "p50"), (32, "p50"), (100, "p90"), (1024, "p99")])
def test_percentiles_are_as_far_out_as_n_says_anything(n, name):
    scenario = REGISTRY[f"real/sync/{n}"]
    run = Run(scenario, 1.0, 1.0, n, 0, 0, 0, None, {"ok": n}, "", latencies=tuple(float(i) for i in range(1, n + 1)))
    found = Measured(scenario, (run,)).latency
    assert found is not None
    assert found[0] == name
    assert found[1] == pytest.approx(n * int(name[1:]) / 100, abs=1.0)


def test_tokens_are_counted_and_every_record_names_the_endpoint(judge_server, two_modes):
    with connect(judge_server) as endpoint:
        endpoint.measure(SMALL)
        measured = endpoint.measured(SMALL)
        figures = endpoint.records(measured)
    assert all(each.tokens[0] > each.tokens[1] > 0 for each in measured)
    assert {(figure.base_url, figure.model) for figure in figures} == {(judge_server.base_url, "judge")}
    assert {"prompt tokens", "completion tokens", "tokens a second", "latency p50"} <= {f.metric for f in figures}


def test_extra_body_and_rubric_reach_every_request(judge_server, two_modes):
    with connect(judge_server, extra_body={"guided_choice": ["a"]}, rubric=rubrics.MONITOR) as endpoint:
        endpoint.measure(SMALL)
        scores = by_mode(endpoint)["asyncio"].scores
    assert set(scores) == {0.0, 1.0}  # true or false, as the monitor asks
    assert endpoint.endpoint.parameters()["guided_choice"] == ["a"]


def test_a_wrong_model_name_is_a_clear_error():
    with (
        SimulatedServer(model="judge") as server,
        pytest.raises(ValueError, match=r"model 'jugde'.*check the model's name"),
    ):
        RealEndpoint.connect(Endpoint(server.base_url, "jugde"), Budget(100))


def nobody_there() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def test_an_unreachable_endpoint_is_told_of_after_one_attempt(monkeypatch):
    """No retry, no wait for a server that might be starting: whoever benchmarks has started it."""
    monkeypatch.setattr("time.sleep", None)
    with pytest.raises(ValueError, match=r"does not judge: no connection to 127\.0\.0\.1:\d+"):
        RealEndpoint.connect(Endpoint(nobody_there(), "judge"), Budget(100))


def test_a_sweep_leaves_the_median_of_every_limit_and_what_was_asked_again(capsys, tmp_path):
    path = tmp_path / "records.jsonl"
    with SimulatedServer(Profile(latency=0.01, concurrency_limit=3), seed=1) as server:
        flags = ["--base-url", server.base_url, "--model", "judge", "--limits", "2", "6", "--samples", "24"]
        assert sweep.main([*flags, "--rounds", "2", "--records", str(path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    found = Newest(read(path))
    assert {each.samples for each in found} == {2}
    assert found.value("real-sweep-2", "asked again") == 0.0
    assert 0.0 < found.value("real-sweep-6", "asked again") < 1.0
    (table,) = own_sweeps(found).values()
    assert [row["at_once"] for row in table.rows] == [2, 6]


def test_limits_of_two_sweeps_are_no_curve():
    endpoint = Endpoint("http://127.0.0.1:9/v1", "judge")
    earlier, later = (
        [
            dataclasses.replace(each, run=run, time=time)
            for each in sweep.records_of(endpoint, 512, speeds, dict.fromkeys(speeds, 0.0))
        ]
        for run, time, speeds in (
            ("one", "2026-11-17T10:00:00Z", {8: [80.0], 64: [300.0], 128: [310.0]}),
            ("two", "2026-11-18T10:00:00Z", {8: [10.0], 16: [20.0], "auto": [20.0]}),
        )
    )
    (table,) = own_sweeps(Newest([*earlier, *later])).values()
    assert [(row["at_once"], row["pace"]) for row in table.rows] == [(8, 10.0), (16, 20.0), ("auto", 20.0)]


def test_a_sweep_of_an_unreachable_endpoint_says_so_at_once(capsys):
    assert sweep.main(["--base-url", nobody_there(), "--model", "judge"]) == 1
    assert "does not judge: no connection to 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize("command", [sweep, prefix_cache], ids=["sweep", "prefix_cache"])
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--base-url", "127.0.0.1:9/v1"], "base_url must begin with http:// or https://"),
        (["--extra-body", "{"], "--extra-body must be a JSON object: "),
        (["--extra-body", "[1]"], "--extra-body must be a JSON object such as"),
        (["--extra-body", '{"n": 2}'], "extra_body must not set 'n'"),
        (["--max-tokens", "0"], "--max-tokens: takes a whole number above 0, not '0'"),
    ],
)
def test_a_wrong_flag_of_a_command_that_asks_an_endpoint_is_one_sentence(command, flags, complaint, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--base-url", "http://127.0.0.1:9/v1", "--model", "judge", *flags])
    assert complaint in capsys.readouterr().err


def test_a_check_without_a_score_is_a_remark_and_no_refusal(judge_server):
    judge_server.when("").says("hm")
    assert "the check's sample has no score: Unparsed" in connect(judge_server).estimate()


def test_a_session_against_a_real_endpoint_runs_its_sizes(tmp_path, judge_server):
    path = tmp_path / "records.jsonl"
    flags = ("--base-url", judge_server.base_url, "--model", "judge", "--max-requests", "80")
    done = bench_session("-k", "real_endpoint", f"--records={path}", *flags, "--extra-body", '{"top_k": 1}')
    assert done.returncode == 0, done.stdout
    assert "real endpoint http://127.0.0.1" in done.stdout
    shown = done.stdout[done.stdout.index("── real endpoint, n = 16") :]
    assert "100% of 16 equal, ±0.00" in shown
    assert LEGEND[:40] in shown
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(line["base_url"], line["model"]) for line in lines} == {(judge_server.base_url, "judge")}
    assert len({line["run"] for line in lines}) == 1
    assert judge_server.stats().requests <= 79


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--base-url", "http://127.0.0.1:9/v1"], "--base-url and --model go together"),
        (
            ["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--extra-body", "{"],
            "--extra-body must be a JSON object: ",
        ),
        (
            ["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--extra-body", "[1]"],
            "--extra-body must be a JSON object such",
        ),
        (["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--rubric", "nicety"], "rubric 'nicety' is none of"),
        (
            ["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--rounds", "0"],
            "--rounds: takes a whole number above 0",
        ),
    ],
)
def test_a_wrong_flag_is_one_sentence_that_names_it(flags, complaint):
    done = bench_session(*flags)
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr

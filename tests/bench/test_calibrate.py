"""What bench.calibrate says, spends and refuses. How near it comes is measured: `tox -e bench -- -k predicted`."""

from __future__ import annotations

import http.server
import json
import socket
import threading

import pytest

import bench.calibrate.predict
from bench.calibrate.__main__ import main
from bench.calibrate.predict import Row, predict_row, recommended
from bench.calibrate.probe import Plan, ProbeFailed, probe
from bench.scenarios import SIZES
from rewardcore.rubrics import QUALITY
from rewardcore.testing import Profile, SimulatedServer

N = 1024


def quiet(*_: object) -> None:
    pass


@pytest.fixture
def few_choices(monkeypatch):
    """Each is judged in virtual time: some, under one seed, are enough to see the table."""
    monkeypatch.setattr(bench.calibrate.predict, "CHOICES", (8,))
    monkeypatch.setattr(bench.calibrate.predict, "_seeds", lambda profile, n: 1)


@pytest.mark.usefixtures("few_choices")
def test_the_command_says_what_it_costs_what_it_found_and_what_to_choose(capsys, tmp_path):
    with SimulatedServer(Profile(latency=0.02, spread=0.1, load_growth=0.02), seed=1) as server:
        plot = tmp_path / "deep" / "endpoint.png"
        arguments = ["--base-url", server.base_url, "--model", "judge", "--max-requests", "120", "--plot", str(plot)]
        assert main([*arguments, "--max-concurrent", "16", "--verify", "16", "--verify-requests", "60"]) == 0
        assert server.stats().requests <= 120 + 60
    printed = capsys.readouterr()
    first, second, *_ = printed.err.splitlines()
    assert "120 requests of about" in first
    assert "never more than 120 on the wire (--max-requests)" in first
    assert "never more than 60 on the wire (--verify-requests)" in second
    assert "--verify leaves out 100, 1024, to stay below --verify-requests" in printed.err
    for part in ("alone ", "under load ", "cannot tell ", "1024 samples", "recommended: asyncio with", "observed"):
        assert part in printed.out
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("few_choices")
def test_json_is_one_document(capsys):
    with SimulatedServer(Profile(latency=0.01, concurrency_limit=6, retry_after=0.01), seed=1) as server:
        arguments = ["--base-url", server.base_url, "--model", "judge", "--max-concurrent", "16", "--json"]
        assert main(arguments) == 0
        assert server.stats().requests <= 400
    found = json.loads(capsys.readouterr().out)
    assert found["limit"]["kind"] == "at once"
    assert found["limit"]["value"] == 6
    assert {row["at_once"] for row in found["predicted"]} >= {1, 4, 6, 8, "auto"}
    assert found["recommended"]["at_once"] in (6, 8)


# What cannot be calibrated is one sentence, with what was spent.


def sentence(capsys, base_url: str, *arguments: str) -> str:
    assert main(["--base-url", base_url, "--model", "judge", *arguments]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("bench.calibrate: ")
    return last


def test_an_endpoint_that_is_not_there(capsys):
    with socket.socket() as bound:  # nobody listens there
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        said = sentence(capsys, f"http://127.0.0.1:{port}/v1")
    assert f"127.0.0.1:{port} does not judge: ConnectionFailed: no connection" in said
    assert said.endswith("(after 1 of 400 requests)")


def test_an_endpoint_that_refuses_everything(capsys, judge_server):
    judge_server.when("").fails(429, retry_after=0.01)
    said = sentence(capsys, judge_server.endpoint.base_url)
    assert "refuses everything, even one at once: RateLimited" in said
    assert said.endswith("(after 3 of 400 requests)")


def test_an_endpoint_that_takes_no_key(capsys, judge_server):
    judge_server.when("").fails(401)
    said = sentence(capsys, judge_server.endpoint.base_url)
    assert "Denied" in said
    assert said.endswith("(after 1 of 400 requests)")


class Garbage(http.server.BaseHTTPRequestHandler):
    """A page for people, whatever was asked."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "14")
        self.end_headers()
        self.wfile.write(b"<html>\n</html>")

    def log_message(self, *_):
        pass


def test_an_endpoint_that_answers_garbage(capsys):
    with http.server.HTTPServer(("127.0.0.1", 0), Garbage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            said = sentence(capsys, f"http://127.0.0.1:{server.server_port}/v1")
        finally:
            server.shutdown()
            thread.join()
    assert "does not judge: " in said
    assert said.endswith("(after 1 of 400 requests)")


def test_an_endpoint_that_fails_half_way(judge_server):
    judge_server.reset(latency=0.01, storm_start=30, storm_length=10_000, error_status=500)
    with pytest.raises(ProbeFailed, match=r"most requests fail with .*: Transient.*500.*after \d+ of 400 requests"):
        probe(judge_server.endpoint, QUALITY, Plan.within(400, 64), quiet, seed=0)
    assert judge_server.stats().requests < 120


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--max-requests", "0"], "--max-requests: takes a whole number above 0, not '0'"),
        (["--max-requests", "20"], "--max-requests must be at least 45, not 20"),
        (["--extra-body", "[1]"], "--extra-body must be a JSON object such as {\"min_p\": 0.1}, not '[1]'"),
        (["--extra-body", "{"], "--extra-body must be a JSON object: "),
        (["--rubric", "nice"], "rubric 'nice' is none of quality"),
        (["--verify", "many"], "--verify: takes a whole number above 0, not 'many'"),
        (["--base-url", "ftp://judge.test/v1"], "base_url must begin with http:// or https://"),
    ],
)
def test_wrong_usage_names_the_flag(capsys, arguments, says):
    with pytest.raises(SystemExit, match="2"):
        main(["--base-url", "http://judge.test/v1", "--model", "judge", *arguments])
    assert says in capsys.readouterr().err


def test_no_more_goes_over_the_wire_than_was_said(judge_server):
    """A limit of two at once makes the probe press on, and it stops at the cap all the same."""
    judge_server.reset(latency=0.005, concurrency_limit=2, retry_after=0.01)
    plan = Plan.within(60, 4)
    probe(judge_server.endpoint, QUALITY, plan, quiet, seed=0)
    assert judge_server.stats().requests <= 60


def test_a_plan_leaves_out_the_levels_that_do_not_fit():
    assert [level for level, _ in Plan.within(400, 64).levels] == [1, 4, 16, 64]
    assert [level for level, _ in Plan.within(200, 64).levels] == [1, 4, 16]
    assert [level for level, _ in Plan.within(400, 30).levels] == [1, 4, 16, 30]


@pytest.mark.parametrize(("max_requests", "quota"), [(285, 192), (300, 207), (400, 307), (10_000, 384)])
def test_the_highest_level_gets_what_is_left_of_the_budget(max_requests, quota):
    """Up to twice what it needs: a large batch is predicted from it."""
    plan = Plan.within(max_requests, 64)
    assert plan.levels[-1] == (64, quota)
    assert plan.requests <= max_requests


@pytest.mark.judge_server(concurrency_limit=24, latency=0.01, retry_after=0.0)
def test_a_level_that_is_refused_leaves_what_is_left_for_telling_a_cap_from_a_rate(judge_server):
    attempts = probe(judge_server.endpoint, QUALITY, Plan.within(400, 64), quiet, seed=0)
    highest, pressed = ([each for each in attempts if each.stage == stage] for stage in (6, 7))
    assert ({each.at_once for each in highest}, len(highest)) == ({64}, 192)
    assert len(pressed) == 400 - 1 - 24 - 8 - 12 - 48 - 192


# What is predicted.


def test_a_rate_limited_endpoint_is_predicted_to_the_end():
    """One of its three seeds never ended: a retry was due between two nanoseconds of the virtual clock."""
    row = predict_row(Profile(latency=0.15, rate_limit=120, retry_after=0.2, spread=0.1), "asyncio", 60, (N,))
    assert row.makespans[N] == pytest.approx((N - 120) / 120, rel=0.15)


def test_makespans_follow_the_mode():
    profile = Profile(latency=1.0)
    assert predict_row(profile, "sync", 1, (16,)).makespans == {16: 16.0}
    assert predict_row(profile, "process", 4, (16,)).makespans == {16: 4.0}
    assert predict_row(profile, "asyncio", 8, (16,)).makespans == {16: 2.0}


def test_what_takes_longer_than_the_harness_waits_is_not_predicted():
    assert predict_row(Profile(latency=700.0), "sync", 1, (16,)).makespans == {16: None}


def test_the_gentlest_of_the_quickest_is_recommended_and_never_what_was_not_probed():
    def row(at_once, seconds, peak=None):
        return Row("asyncio", at_once, dict.fromkeys(SIZES, seconds), peak or at_once)

    rows = [row(8, 20.0), row(16, 10.3), row(60, 10.0), row("auto", 5.0, peak=200)]
    assert recommended(rows, 64) is rows[1]
    assert recommended(rows, 200) is rows[3]


def test_an_api_key_is_in_no_sentence(capsys, judge_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    judge_server.when("").fails(401, code="sk-very-secret-key")  # which its sentence would repeat
    said = sentence(capsys, judge_server.endpoint.base_url)
    assert "401" in said
    assert "very-secret" not in said

"""`rewardcore reject-sample` against a server that is there: what it asks, what it writes, how it ends."""

import base64
import json
import signal
import subprocess

import pytest

from tests import commands
from tests.modes.hostile_server import HostileServer, says
from tests.rejection.conftest import COMMAND, problems
from tests.serving.conftest import until

PNG = b"\x89PNG\r\n\x1a\n a picture"


def test_the_whole_of_it_in_three_files(command):
    command.rows(5)
    command.server.when("picture 3?").says("I cannot tell.")
    done = command("--num_rollout", 4, "--temperature", 0.5)  # either spelling of a flag
    assert done.returncode == 0, done.stderr
    assert command.server.stats().requests == 20
    folder = command.output / "policy"
    assert (folder / "error_distribution.png").read_bytes().startswith(b"\x89PNG")
    assert command.results() == [
        {
            "index": place,
            "problem": f"How good is picture {place}?",
            "ground_truth": float(place),
            "min_error": None if place == 3 else abs(2.0 - place),
            "num_valid_rollouts": 0 if place == 3 else 4,
            "num_total_rollouts": 4,
            "best_response": None
            if place == 3
            else {"response": "<answer>2</answer>", "pred_value": 2.0, "error": abs(2.0 - place)},
            "all_errors": [] if place == 3 else [abs(2.0 - place)] * 4,
        }
        for place in range(5)
    ]
    assert [
        (row["num_unparsed_rollouts"], row["num_failed_rollouts"]) for row in sorted(command.kept(), key=_index)
    ] == [(4 if place == 3 else 0, 0) for place in range(5)]
    assert (folder / "statistics.txt").read_text() == STATISTICS


def _index(row):
    return row["index"]


STATISTICS = """\
rejection sampling of policy
  model        policy
  model path   not told
  data         rows.jsonl
  rollouts     4 a sample
  temperature  0.5
  max retries  10

samples
  total            5
  valid            4  80.0%
  no valid answer  1  20.0%
  failed           0   0.0%

rollouts
  total     20
  valid     16  80.0%
  unparsed   4  20.0%
  failed     0   0.0%

smallest error of each valid sample, |predicted − truth|
  mean    1.2500
  median  1.5000
  std     0.8292
  min     0.0000
  max     2.0000

how many valid samples have an error of
  error       samples
  [0, 0.1)          1  25.0%
  [0.1, 0.2)        0   0.0%
  [0.2, 0.3)        0   0.0%
  [0.3, 0.5)        0   0.0%
  [0.5, 0.8)        0   0.0%
  [0.8, 1)          0   0.0%
  [1, 1.5)          1  25.0%
  [1.5, 2)          0   0.0%
  [2, ∞)            2  50.0%
"""


def test_results_stand_in_the_order_of_the_rows_whatever_comes_first(command):
    command.rows(30)
    command.server.when("picture 0?").says("<answer>2</answer>", seconds=0.3)
    assert command("--num-rollout", 2).returncode == 0
    assert [row["index"] for row in command.results()] == list(range(30))
    assert command.kept()[-1]["index"] == 0, "written as they are finished"


def test_what_is_asked_is_what_the_flags_say(command, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "one.png").write_bytes(PNG)
    with HostileServer() as server:
        script = server.script(says("<answer>1</answer>"))
        text = f"Is <image> good, [[{script.marker}]]?"
        command.rows([{"problem": text, "answer": 1, "images": ["pictures/one.png"]}])
        done = command.alone(
            "--base-url", server.base_url, "--model-name", "policy", "--data", "rows.jsonl", "--num-rollout", 1,
            "--system", "Be strict.", "--prompt-suffix", "Answer.", "--top-p", 0.9, "--max-tokens", 77,
            "--extra-body", '{"min_p": 0.25}',
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (body,) = map(json.loads, script.bodies)
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    assert body == {
        "model": "policy",
        "messages": [
            {"role": "system", "content": "Be strict."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Is "},
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "text", "text": f" good, [[{script.marker}]]?"},
                    {"type": "text", "text": "\nAnswer."},
                ],
            },
        ],
        "temperature": 1.0,
        "top_p": 0.9,
        "max_tokens": 77,
        "min_p": 0.25,
    }


def test_the_environment_says_what_the_flags_do_not(command):
    command.rows(9)
    variables = {
        "MODEL_NAME": "policy", "MODEL_PATH": "/models/policy at step 7", "NUM_ROLLOUT": "3", "TEMPERATURE": "0.25",
        "MAX_RETRIES": "4", "CONCURRENCY": "2", "MAX_DATA": "5", "MODEL_PORT": str(command.server.port),
    }  # fmt: skip
    done = command.alone("--skip-vllm-launch", "--data", "rows.jsonl", **variables)
    assert done.returncode == 0, done.stderr
    stats = command.server.stats()
    assert (stats.requests, stats.peak_in_flight <= 6) == (15, True)
    said = (command.output / "policy" / "statistics.txt").read_text()
    for line in ("/models/policy at step 7", "3 a sample", "0.25", "max retries  4"):
        assert line in said


def test_a_finished_run_is_reported_again_without_asking(command):
    command.rows(4)
    assert command("--num-rollout", 2).returncode == 0
    before = command.results()
    (command.output / "policy" / "reject_sampling_results.json").unlink()
    done = command("--num-rollout", 2)
    assert (done.returncode, command.server.stats().requests) == (0, 8)
    assert "4 of 4 samples were done before" in done.stdout
    assert command.results() == before


def test_more_data_is_only_what_is_new(command):
    command.rows(6)
    assert command("--num-rollout", 2, "--max-data", 2).returncode == 0
    assert len(command.results()) == 2
    assert command("--num-rollout", 2).returncode == 0
    assert (len(command.results()), command.server.stats().requests) == (6, 12)
    assert command("--num-rollout", 2, "--max-data", 3).returncode == 0
    assert (len(command.results()), command.server.stats().requests) == (3, 12)


def test_another_configuration_is_refused_in_one_sentence_that_names_it(command):
    command.rows(3)
    assert command("--num-rollout", 2).returncode == 0
    done = command("--num-rollout", 2, "--temperature", 0.5)
    assert done.returncode == 2
    assert "temperature was 1.0 and is 0.5" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert command.server.stats().requests == 6
    assert command("--num-rollout", 2, "--temperature", 0.5, "--no-resume").returncode == 0
    assert command.server.stats().requests == 12
    assert command("--num-rollout", 2, "--temperature", 0.5, "--concurrency", 3, "--max-retries", 1).returncode == 0


def test_what_could_not_be_had_is_told_counted_and_tried_again(command):
    command.rows(3)
    command.server.when("picture 1?").fails(400, times=2).says("<answer>1</answer>")
    failed = command("--num-rollout", 2)
    assert failed.returncode == 1
    assert "1 sample of policy failed" in failed.stderr
    row = command.results()[1]
    assert (row["min_error"], row["num_valid_rollouts"], row["num_total_rollouts"]) == (None, 0, 2)
    assert "failed           1  33.3%" in (command.output / "policy" / "statistics.txt").read_text()
    done = command("--num-rollout", 2)
    assert (done.returncode, command.server.stats().requests) == (0, 8)
    assert command.results()[1]["min_error"] == 0.0


def test_a_rollout_that_fails_by_itself_is_tried_again_as_often_as_asked(command):
    command.rows(20)
    command.server.when("picture 7?").fails(500)
    done = command("--num-rollout", 1, "--max-retries", 2)
    assert done.returncode == 1
    assert 22 <= command.server.stats().requests <= 24


def test_with_a_cache_not_even_the_rollouts_of_an_unfinished_sample_are_paid_twice(command):
    command.rows(3)
    assert command("--num-rollout", 2, "--cache", "replies.sqlite").returncode == 0
    assert command("--num-rollout", 2, "--cache", "replies.sqlite", "--no-resume").returncode == 0
    assert command.server.stats().requests == 6
    more = command("--num-rollout", 5, "--cache", "replies.sqlite", "--output-dir", "more")
    assert (more.returncode, command.server.stats().requests) == (0, 15)


def test_equal_problems_are_still_draws_of_their_own(command):
    command.rows([{"problem": "How good?", "answer": 2}] * 5)
    assert command("--num-rollout", 3, "--cache", "replies.sqlite").returncode == 0
    assert command.server.stats().requests == 15


def test_a_bad_row_is_named_before_anything_is_asked_and_skipped_if_it_may_be(command):
    command.rows([*problems(2), {"problem": "How?", "answer": "good"}])
    done = command()
    assert (done.returncode, command.server.stats().requests) == (2, 0)
    assert "line 3 of rows.jsonl: answer must be a finite number, not str 'good'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = command("--skip-bad-rows", "--num-rollout", 1)
    assert (done.returncode, command.server.stats().requests) == (0, 2)
    assert "skipped: 1 bad row in rows.jsonl: line 3" in done.stdout
    assert "bad rows, skipped  1" in (command.output / "policy" / "statistics.txt").read_text()


@pytest.mark.parametrize("rows", [[], [{"problem": "How?"}]])
def test_nothing_to_ask_is_a_mistake(command, rows):
    command.rows(rows)
    done = command("--skip-bad-rows")
    assert (done.returncode, done.stderr) == (2, "rewardcore: rows.jsonl holds no rows that can be asked\n")


def test_a_model_that_is_not_served_is_named(command):
    command.rows(50)
    command.server.when("").fails(404)
    done = command()
    assert done.returncode == 1
    assert "404" in done.stderr.splitlines()[-1]
    assert command.kept() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--model-path (MODEL_PATH) says which model to serve"),
        (["--base-url", "http://127.0.0.1:9/v1"], "--model-name (MODEL_NAME) says what requests"),
        (["--model-path", "a", "--model-path", "b", "--model-name", "a"], "given 2 times and --model-name 1 times"),
        (["--model-path", "no/such/path", "--model-name", "a"], "model_path 'no/such/path' does not exist"),
        (["--model-name", "a", "--base-url", "127.0.0.1:8000"], "base_url must begin with http"),
        (
            ["--model-name", "a", "--model-name", "a", "--skip-vllm-launch"],
            "'a' and 'a' would write to the same folder",
        ),
        (["--model-name", "a", "--skip-vllm-launch", "--vllm-arg=--x"], "--vllm-arg goes to a server that is started"),
        (["--model-name", "a", "--skip-vllm-launch", "--extra-body", "{"], "--extra-body must be a JSON object: "),
        (["--model-name", "a", "--skip-vllm-launch", "--extra-body", "[]"], "--extra-body must be a JSON object"),
        (["--model-name", "a", "--skip-vllm-launch", "--num-rollout", 0], "num_rollout must be a whole number"),
        (["--model-name", "a", "--skip-vllm-launch", "--data", "none.jsonl"], "none.jsonl does not exist"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(command, arguments, says):
    done = command.alone(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_cache_that_cannot_be_used_is_told_before_anything_is_asked(command):
    command.rows(2)
    (command.directory / "broken.sqlite").write_bytes(b"this is no cache" * 100)
    done = command("--cache", "broken.sqlite")
    assert (done.returncode, command.server.stats().requests) == (2, 0)
    assert "broken.sqlite" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_key_ends_the_run_at_once_and_finishes_nothing(command):
    command.rows(200)
    command.server.when("").fails(401)
    done = command("--num-rollout", 4)
    assert done.returncode == 1
    assert "401" in done.stderr.splitlines()[-1]
    assert command.server.stats().requests <= 33
    assert command.kept() == []


def test_with_json_the_last_line_is_one_document_and_with_quiet_nothing_else_is_said(command):
    command.rows(3)
    done = command("--num-rollout", 2, "--json", "--quiet")
    (found,) = json.loads(done.stdout.splitlines()[-1])["checkpoints"]
    assert (found["model_name"], found["total"], found["valid"], found["failed"]) == ("policy", 3, 3, 0)
    assert found["rollouts"] == {"valid": 6, "unparsed": 0, "failed": 0}
    assert (done.stderr, len(done.stdout.splitlines())) == ("", 1)


def test_without_matplotlib_it_is_said_first_and_all_else_is_written(command):
    command.rows(2)
    hidden = f"import sys; sys.modules['matplotlib'] = None; {COMMAND}"
    there = ["--base-url", command.server.base_url, "--model-name", "policy", "--data", "rows.jsonl"]
    done = subprocess.run(
        command.arguments(*there, code=hidden),
        cwd=command.directory,
        env=command.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("matplotlib is not installed, so there will be no pictures")
    assert "rewardcore[report]" in done.stdout
    names = sorted(path.name for path in (command.output / "policy").iterdir() if "results.jsonl." not in path.name)
    assert names == ["reject_sampling_results.json", "results.jsonl", "statistics.txt"]


class Running:
    """The command on its way, one rollout at a time, of a server that takes its time."""

    def __init__(self, command, *arguments):
        there = ["--base-url", command.server.base_url, "--model-name", "policy", "--data", "rows.jsonl"]
        self.command = command
        self.process = subprocess.Popen(
            command.arguments(*there, "--num-rollout", 2, "--concurrency", 1, *arguments),
            cwd=command.directory,
            env=command.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until_kept(self, count):
        path = self.command.output / "policy" / "results.jsonl"
        assert until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)

    def end_with(self, number):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.mark.judge_server(latency=0.05)
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_what_is_done_is_kept_and_how_to_go_on_is_said(command, number, code, word):
    command.rows(40)
    running = Running(command)
    running.until_kept(3)
    found, _, err = running.end_with(number)
    assert found == code
    last = err.splitlines()[-1]
    assert last.startswith(f"rewardcore: {word}: ")
    assert "of 40 samples of policy are kept in" in last
    assert "run the same command again to go on" in last
    asked, kept = command.server.stats().requests, len(command.kept())
    done = command("--num-rollout", 2)
    assert done.returncode == 0
    assert command.server.stats().requests == asked + 2 * (40 - kept)
    assert [row["index"] for row in command.results()] == list(range(40))


@pytest.mark.judge_server(latency=0.05)
def test_a_killed_run_goes_on_and_pays_only_for_what_was_in_flight(command):
    command.rows(40)
    running = Running(command)
    running.until_kept(3)
    assert running.end_with(signal.SIGKILL)[0] == -signal.SIGKILL
    kept = len(command.kept())
    asked = command.server.stats().requests
    assert asked <= 2 * kept + 2 * 2, "at most what was in flight, and what had just come"
    with (command.output / "policy" / "results.jsonl").open("ab") as file:
        file.write(b'{"index": 39, "problem": "How go')  # as a kill in mid-line leaves it
    done = command("--num-rollout", 2)
    assert done.returncode == 0, done.stderr
    assert command.server.stats().requests == asked + 2 * (40 - kept)
    assert [row["index"] for row in command.results()] == list(range(40))


@pytest.mark.judge_server(latency=0.3)
def test_two_runs_do_not_write_to_one_folder(command):
    command.rows(40)
    running = Running(command)
    running.until_kept(1)
    done = command("--num-rollout", 2)
    assert done.returncode == 2
    assert "is being written by another process" in done.stderr
    running.end_with(signal.SIGTERM)


def test_the_command_is_listed_and_its_help_names_every_flag(command):
    assert "reject-sample" in commands.rewardcore("--help").stdout
    shown = command.alone("--help", COLUMNS="200").stdout
    for flag in ("model-path", "num-rollout", "skip-vllm-launch", "model-port", "log-dir", "no-resume", "extra-body"):
        assert f"--{flag}" in shown
    for variable in (
        "MODEL_PATH",
        "NUM_ROLLOUT",
        "TEMPERATURE",
        "MAX_RETRIES",
        "CONCURRENCY",
        "MAX_DATA",
        "MODEL_PORT",
    ):
        assert variable in shown

from tests.bench.test_examples import run


def test_the_example_trains_from_start_to_finish():
    done = run("-m", "examples.train_with_trl", timeout=120)
    assert done.returncode == 0, done.stderr
    for step in (1, 2):
        assert f"step {step}: 75% judged, mean reward 0." in done.stdout
    assert "4 of 16 not judged: 4 RubricFailed" in done.stderr


def test_a_policy_judges_itself_from_start_to_finish():
    done = run("-m", "examples.judge_with_policy", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "2 steps, mean reward 0." in done.stdout
    assert "; 4 calls of the policy" in done.stdout

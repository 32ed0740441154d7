from tests.bench.test_examples import run


def test_the_example_rewards_from_start_to_finish():
    done = run("-m", "examples.train_with_verl", timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("reward 0.") == 4
    assert done.stdout.count("What is love? It is 28. no reward: 1 of 1 not judged") == 1
    assert done.stdout.count("no reward: ") == 2


def test_verls_own_command_line_takes_the_examples_configuration():
    command = ["-m", "verl.trainer.main_ppo", "--config-dir", "examples", "--config-name", "train_with_verl"]
    done = run(
        *command, "algorithm.adv_estimator=grpo", "--cfg", "job", "--package", "reward.reward_manager", timeout=120
    )
    assert "name: JudgeRewardManager" in done.stdout, done.stderr

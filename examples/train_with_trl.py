"""GRPO with TRL from start to finish, rewarded by a judge. It needs the extra trl: `pip install '.[trl]'`.

A tiny model learns nothing here, in seconds on a CPU; the comments say what to put in its place. What the judge could
not judge is masked by TRL, and the log says how much that was.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import rewardcore as rc
from examples import a_judge_model
from fixtures.tiny_judge import make_tiny_judge
from rewardcore.trainers.trl import judging_ahead, reward_function

# Yours: load_dataset(…), with a column "prompt" of texts or conversations. Every other column reaches the rubric if
# reward_function names it: ground_truth="answer", extra=["level"].
ROWS = [
    {"prompt": [{"role": "user", "content": f"What is {number} × 7?"}], "ground_truth": str(7 * number)}
    for number in (4, 5, 6)
] + [{"prompt": [{"role": "user", "content": "What is love?"}], "ground_truth": None}]  # nothing to judge it by


def is_short(completions: list[list[dict[str, str]]], **_: object) -> list[float]:
    """A rule of the usual kind. In TRL's own list, beside the judge, it would unmask what was not judged."""
    return [0.1 * (len(message["content"]) < 200) for (message,) in completions]


def main() -> None:
    with a_judge_model() as endpoint, tempfile.TemporaryDirectory() as directory:
        judge = reward_function(
            endpoint,  # yours: rc.Endpoint("http://127.0.0.1:8000/v1", "judge"), or --base-url and --model
            rc.rubrics.CORRECTNESS,
            beside=[is_short],
            asynchronous=True,
            max_concurrent=60,  # in each process of the trainer
            deadline=300.0,  # what is not judged by then is masked; the step goes on
            cache=True,  # yours: "judge.sqlite", so that a run that starts again pays nothing twice
        )
        trainer = judging_ahead(GRPOTrainer)(  # judging begins when the completions are there, not when TRL asks
            model=str(make_tiny_judge(Path(directory, "policy"))),  # yours: "Qwen/Qwen3-0.6B"
            reward_funcs=judge,
            train_dataset=Dataset.from_list(ROWS),
            args=GRPOConfig(
                output_dir=directory,
                max_steps=2,
                per_device_train_batch_size=16,
                num_generations=4,
                max_completion_length=48,  # yours: as long as its answers
                logging_steps=1,
                report_to="none",  # yours: "wandb", with log_completions=True to see each verdict and the judge's words
                use_cpu=True,  # yours: leave out these four
                bf16=False,
                save_strategy="no",
                disable_tqdm=True,
            ),
        )
        trainer.train()
        for step, logged in enumerate(trainer.state.log_history[:2], 1):
            print(f"step {step}: {logged['correctness/judged']:.0%} judged, mean reward {logged['reward']}")


if __name__ == "__main__":
    main()

"""The reward's part of a verl run: what verl's own reward loop makes of train_with_verl.yaml, under a local Ray.

A training run needs GPUs; this needs the extra verl (`pip install '.[verl]'`) and half a minute. Each response goes to
a worker drawn at random, as verl's agent loops send them. What the judge could not judge raises there: verl leaves that
response out, or rolls out another group, and nothing was scored 0.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import numpy
import ray
import torch
from hydra import compose, initialize_config_dir
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from verl import DataProto
from verl.experimental.reward_loop import RewardLoopManager

from examples import a_judge_model
from fixtures.tiny_judge import make_tiny_judge
from rewardcore.rewards import NotJudged

TRUTHS = {"What is 4 × 7?": "28", "What is 5 × 7?": "35", "What is love?": None}  # nothing to judge the last one by


def trajectory(tokenizer: PreTrainedTokenizerBase, prompt: str, response: str) -> DataProto:
    """One response, as an agent loop hands it over with its row of the dataset."""
    prompts, responses = (torch.tensor([tokenizer.encode(text)]) for text in (prompt, response))
    row = {
        "raw_prompt": [{"role": "user", "content": prompt}],
        "data_source": "products",
        "reward_model": {"style": "rule", "ground_truth": TRUTHS[prompt]},
    }
    return DataProto.from_dict(
        {
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.ones(1, prompts.shape[1] + responses.shape[1], dtype=torch.long),
        },
        {name: numpy.array([value], dtype=object) for name, value in row.items()},
    )


def main() -> None:
    with a_judge_model() as endpoint, tempfile.TemporaryDirectory() as directory:
        os.environ |= {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY", "none")}
        model = str(make_tiny_judge(Path(directory, "policy")))  # yours: "Qwen/Qwen3-0.6B"
        overrides = ["hydra.searchpath=[pkg://verl.trainer.config]", f"actor_rollout_ref.model.path={model}"]
        with initialize_config_dir(str(Path(__file__).parent.resolve()), version_base=None):
            config = compose("train_with_verl", [*overrides, f"reward.reward_kwargs.model_name={endpoint.model}"])
        ray.init(num_cpus=config.reward.num_workers, include_dashboard=False)
        try:
            workers = RewardLoopManager(config).reward_loop_worker_handles
            tokenizer = AutoTokenizer.from_pretrained(model)
            asked = [(prompt, f"It is {answer}.") for prompt in TRUTHS for answer in (28, 35)]
            found = [
                random.choice(workers).compute_score.remote(trajectory(tokenizer, prompt, response))
                for prompt, response in asked
            ]
            for (prompt, response), reward in zip(asked, found, strict=True):
                try:
                    print(f"{prompt} {response} reward {ray.get(reward)['reward_score']:.2f}")
                except NotJudged as error:
                    print(f"{prompt} {response} no reward: {error.cause}")
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()

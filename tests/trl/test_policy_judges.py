"""The policy in training judges: TRL notices nothing of it but the rewards."""

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import rewardcore as rc

ROWS = [{"prompt": [{"role": "user", "content": f"What is {number} + {number}?"}]} for number in range(8)]


@pytest.fixture
def train(tiny_judge, tmp_path):
    """Three steps with a reward function that is made of the policy; the weights that come of them."""

    def with_rewards(rewards_of):
        torch.manual_seed(1)
        model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny_judge), AutoTokenizer.from_pretrained(tiny_judge)
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=rewards_of(model, tokenizer),
            train_dataset=Dataset.from_list(ROWS),
            args=GRPOConfig(
                output_dir=str(tmp_path),
                max_steps=3,
                learning_rate=0.1,
                per_device_train_batch_size=8,
                num_generations=4,
                max_completion_length=24,
                use_cpu=True,
                bf16=False,
                report_to="none",
                save_strategy="no",
            ),
        )
        trainer.train()
        return [weight.clone() for weight in model.parameters()]

    return with_rewards


def test_training_goes_as_it_would_with_the_same_rewards_from_elsewhere(train):
    """Completions, modes, random states: had judging changed any of it, the weights would be others."""
    kept, seen = [], []

    def judged(model, tokenizer):
        generator = rc.TorchGenerator(model=model, tokenizer=tokenizer, max_new_tokens=40, temperature=1.0)
        judge = rc.open_judge("self", generator, batch_size=4)

        def rewards(prompts, completions, **_):
            before = [module.training for module in model.modules()]
            verdicts = judge.judge([rc.Sample(*pair) for pair in zip(prompts, completions, strict=True)])
            seen.append(before == [module.training for module in model.modules()])
            kept.append([verdict.score for verdict in verdicts])
            return kept[-1]

        return rewards

    by_policy = train(judged)
    assert seen == [True] * 3
    assert len({score for step in kept for score in step}) > 2, "rewards that are all alike would teach nothing"
    again = iter(kept)
    by_others = train(lambda *_: lambda **_: next(again))
    assert all(torch.equal(one, other) for one, other in zip(by_policy, by_others, strict=True))

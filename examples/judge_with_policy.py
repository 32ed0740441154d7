"""GRPO with TRL whose own policy judges: one model, one copy of its weights. It needs the extra trl.

TRL asks for rewards between writing completions and the update, when the model is free; the judge gives it back as it
was. A policy that grades itself can learn to please itself: use a rubric with a ground truth, and watch a score that it
does not see. A tiny model learns nothing here, in seconds on a CPU.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import fmean

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

import rewardcore as rc
from fixtures.tiny_judge import make_tiny_judge

Conversation = list[dict[str, str]]

ROWS = [
    {"prompt": [{"role": "user", "content": f"What is {number} × 7?"}], "answer": str(7 * number)}
    for number in range(4, 8)
]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = make_tiny_judge(Path(directory, "policy"))  # yours: "Qwen/Qwen3-0.6B"
        model, tokenizer = AutoModelForCausalLM.from_pretrained(place), AutoTokenizer.from_pretrained(place)
        generator = rc.TorchGenerator(model=model, tokenizer=tokenizer, max_new_tokens=48)  # with room for an analysis

        def correctness(
            prompts: list[Conversation], completions: list[Conversation], answer: list[str], **_: object
        ) -> list[float | None]:
            samples = [
                rc.Sample(prompt, completion[0]["content"], ground_truth=truth)
                for prompt, completion, truth in zip(prompts, completions, answer, strict=True)
            ]
            return [verdict.score for verdict in judge.judge(samples)]  # None is masked by TRL

        with rc.open_judge("self", generator, rubric=rc.rubrics.CORRECTNESS, batch_size=8) as judge:
            trainer = GRPOTrainer(
                model=model,
                processing_class=tokenizer,
                reward_funcs=correctness,
                train_dataset=Dataset.from_list(ROWS),
                args=GRPOConfig(
                    output_dir=directory,
                    max_steps=2,
                    per_device_train_batch_size=16,
                    num_generations=4,
                    max_completion_length=48,
                    logging_steps=1,
                    report_to="none",
                    use_cpu=True,  # yours: leave out these four
                    bf16=False,
                    save_strategy="no",
                    disable_tqdm=True,
                ),
            )
            trainer.train()
            rewards = [logged["reward"] for logged in trainer.state.log_history if "reward" in logged]
            print(f"{len(rewards)} steps, mean reward {fmean(rewards):.2f}; {judge.stats.requests} calls of the policy")


if __name__ == "__main__":
    main()

"""Judging beside the GPU's work: `submit` returns at once, and `pending.waited` says how long you were held up."""

from __future__ import annotations

import time

import rewardcore as rc
from examples import a_judge_model


def compute_log_probabilities() -> None:
    time.sleep(1.5)  # what a training step does meanwhile


def main() -> None:
    samples = [rc.Sample(f"Question {number}?", f"Answer {number}.") for number in range(256)]
    with a_judge_model() as endpoint, rc.open_judge("asyncio", endpoint, max_concurrent="auto") as judge:
        pending = judge.submit(samples)
        compute_log_probabilities()
        print(f"meanwhile: {pending.progress}")
        verdicts = pending.result()
        scores = [verdict.score for verdict in verdicts if verdict.score is not None]
        print(f"{len(scores)} of {len(verdicts)} scored; the caller waited {pending.waited:.1f} s for them")


if __name__ == "__main__":
    main()
